"""`python -m twofold` is `twofold`."""

import sys

from twofold.cli import main

sys.exit(main())
