"""Words of `simulate`: traces by class, a pair of scenarios; and how many runs go side by side."""

import os
from pathlib import Path

from twofold.core import UsageError


def core_count() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def traces_by_class(traces: tuple[str, ...]) -> dict[str, Path]:
    """`chat=a.csv` by class; a file alone stands for the first class."""
    found: dict[str, Path] = {}
    for text in traces:
        name, sign, path = text.partition("=")
        if sign and ("/" in name or Path(text).exists()):  # a path that holds the sign
            name, path = "", text
        name, path = (name, path) if sign else ("", text)
        if name in found:
            whose = f"`{name}`" if name else "the first class"
            raise UsageError(f"two traces for {whose}", hint="give each class one trace")
        found[name] = Path(path)
    return found


def scenario_pair(compare: str | None) -> tuple[str, str] | None:
    """`a,b` as two names."""
    if compare is None:
        return None
    names = [name.strip() for name in compare.split(",")]
    if len(names) != 2 or not all(names):
        hint = "write for example `--compare zone-loss,zone-loss-no-spares`"
        raise UsageError(f"`--compare {compare}` names no two scenarios", hint=hint)
    return names[0], names[1]
