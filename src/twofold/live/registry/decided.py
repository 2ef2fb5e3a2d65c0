"""`python -m twofold.live.registry.decided REGISTRY NAME DIGEST promoted|rolled-back WHY DECISION`.

How a trial ended, told to the registry.

The controller of a service runs it when its gate has decided, and again until it exits 0: the registry says
from then on what serves, by whom it was decided, and why.
"""

import sys
from pathlib import Path

from twofold.core.errors import TwofoldError
from twofold.live.registry.registry import Registry

PROMOTED = "promoted"
GATE = "gate"  # who did it


def main() -> None:
    """The command line of the process."""
    folder, name, digest, outcome, why, decision = sys.argv[1:]
    try:
        registry = Registry(Path(folder))
        why = why or "no worse in any of its tests"
        registry.decided(name, digest, GATE, outcome == PROMOTED, why, decision)
    except TwofoldError as error:
        sys.stderr.write(f"error[{error.code}]: {error.message}\n")
        sys.exit(2)


if __name__ == "__main__":
    main()
