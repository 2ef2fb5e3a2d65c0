"""The command line: a verb parses its words, calls one function of `app` and renders what it returns."""

import sys
from collections.abc import Sequence

__all__ = ["main"]

INTERRUPTED = 130  # 128 + SIGINT, as shells count


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line (default: this process's) and return its exit code. Never raises."""
    try:
        # Loading click takes most of the start: Ctrl-C may come then already.
        from twofold.cli.entry import run

        return run(argv)
    except KeyboardInterrupt:
        sys.stderr.write("\nstopped by Ctrl-C\n")
        return INTERRUPTED
