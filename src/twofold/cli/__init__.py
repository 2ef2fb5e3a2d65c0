"""The command line: a verb parses its words, calls one function of `app` and renders what it returns."""

import gc
import sys
from collections.abc import Sequence
from contextlib import suppress

__all__ = ["main"]

INTERRUPTED = 130  # 128 + SIGINT, as shells count
COLLECT_AFTER = 50_000  # new objects; at the 700 of Python an eighth of the start goes into looking for waste


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line (default: this process's) and return its exit code. Never raises."""
    before = gc.get_threshold()
    gc.set_threshold(COLLECT_AFTER)
    try:
        # Loading click takes most of the start: Ctrl-C may come then already.
        from twofold.cli.entry import run

        return run(argv)
    except KeyboardInterrupt:
        _say("stopped by Ctrl-C")
        return INTERRUPTED
    except SystemExit as told:  # a verb was told to end, and has cleaned up
        code = told.code if isinstance(told.code, int) else 1
        _say(f"stopped by signal {code - 128}")
        return code
    finally:
        gc.set_threshold(*before)


def _say(text: str) -> None:
    with suppress(OSError):  # the terminal may be gone
        sys.stderr.write(f"\n{text}\n")
