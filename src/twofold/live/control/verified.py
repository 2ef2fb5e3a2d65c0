"""`python -m twofold.live.control.verified FOLDER DIGEST COMMAND…`: the command, once the folder is whole.

A replica checks its own model: whoever starts it, and however often, other bytes than the digest names are
never opened. Exits 2, with the file's name, where one is not what it should be.
"""

import os
import sys
from pathlib import Path

from twofold.core.errors import TwofoldError
from twofold.live.training.artefact import check_model


def main() -> None:
    """Check, then run the command in this process."""
    folder, digest, *command = sys.argv[1:]
    try:
        check_model(Path(folder), digest)
    except (TwofoldError, OSError) as error:
        sys.exit(f"{error}" if isinstance(error, OSError) else f"error[{error.code}]: {error.message}")
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
