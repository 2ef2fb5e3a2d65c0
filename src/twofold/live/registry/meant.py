"""`python -m twofold.live.registry.meant REGISTRY NAME ALIAS`: the digest that an alias means by now.

The controller of a service asks it where somebody was killed who moved both. It says "" for an alias that
means nothing, and ends with 2 where the tables say other than the log.
"""

import sys
from pathlib import Path

from twofold.core.errors import TwofoldError
from twofold.live.registry.registry import Registry


def main() -> None:
    """The command line of the process."""
    folder, name, alias = sys.argv[1:]
    try:
        sys.stdout.write(Registry(Path(folder)).meant(name, alias))
    except TwofoldError as error:
        sys.stderr.write(f"error[{error.code}]: {error.message}\n")
        sys.exit(2)


if __name__ == "__main__":
    main()
