"""`python -m bench [NAME …]`: run `main` of every module in this folder, or of those named."""

import sys
from importlib import import_module
from pathlib import Path

LONG = {
    "canary",
    "closed_form",
    "fleet_sizes",
    "gateway_peers",
    "models",
    "train_calibration",
}  # that run for minutes or an hour: by name only


def names() -> list[str]:
    """The benches that run without a name, by file name."""
    stems = {path.stem for path in Path(__file__).parent.glob("*.py") if not path.stem.startswith("_")}
    return sorted(stems - LONG)


for name in sys.argv[1:] or names():
    print(f"== {name}")
    import_module(f"bench.{name}").main()
