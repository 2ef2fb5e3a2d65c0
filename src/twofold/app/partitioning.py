"""`catalog partitions`: what a device can be cut into, and whether a mix of it fits on one device."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from twofold.app.lines import table
from twofold.catalog import Partition, load_catalog
from twofold.core import InfeasibleError, UnknownNameError, ValueRefusedError, format_bytes

_ITEM = re.compile(r"\s*(?:(\d{1,3})\s*[x×]\s*)?([\w.+-]+?)\s*", re.IGNORECASE)
AMD = "amd"


@dataclass(frozen=True, slots=True)
class Profiles:
    """Every legal profile of one device, and where the requested ones would stand."""

    accelerator: str
    profiles: tuple[Partition, ...]
    placed: tuple[tuple[str, int], ...]  # profile, first memory slice; empty without a request

    @property
    def lines(self) -> list[str]:
        if not self.profiles:
            return [f"{self.accelerator} cannot be partitioned"]
        rows = [
            (
                one.profile,
                str(one.count_max),
                f"{one.compute_slices}/{one.compute_slices_total}",
                f"{one.memory_slices}/{one.memory_slices_total}",
                format_bytes(one.memory_bytes),
                one.memory_modes or "–",
                one.notes,
            )
            for one in self.profiles
        ]
        columns = ("profile", "at most", "compute", "memory slices", "memory", "modes", "")
        text = [
            f"{self.accelerator}: {self.profiles[0].kind} profiles",
            *table(columns, rows, numbers=(1, 4)),
        ]
        where = [f"{profile} at slice {start}" for profile, start in self.placed]
        return [*text, f"fits: {', '.join(where)}"] if where else text


def partitions(accelerator: str, request: str = "") -> Profiles:
    """The legal profiles of a device. `request`, such as `3x 1g.10gb + 1x 4g.40gb`, must fit on one device.

    Raises InfeasibleError with the reason when it does not.
    """
    catalog = load_catalog()
    name = catalog.accelerator(accelerator).name
    profiles = catalog.partitions(name)
    if not request:
        return Profiles(name, profiles, ())
    wanted = _requested(request, profiles, name)
    return Profiles(name, profiles, _placed(wanted, name))


def _requested(request: str, profiles: Sequence[Partition], name: str) -> list[Partition]:
    known = {one.profile.lower(): one for one in profiles}
    wanted: list[Partition] = []
    for item in re.split(r"\s+\+\s+|,", request):
        match = _ITEM.fullmatch(item)
        if not match:
            raise ValueRefusedError(
                f"`{item}` is not a profile", hint="write for example `3x 1g.10gb + 4g.40gb`"
            )
        profile = known.get(match[2].lower())
        if profile is None:
            raise UnknownNameError(
                f"`{match[2]}` is not a profile of {name}", hint=f"profiles: {', '.join(known) or 'none'}"
            )
        wanted += [profile] * int(match[1] or 1)
    return wanted


def _placed(wanted: Sequence[Partition], name: str) -> tuple[tuple[str, int], ...]:
    """Where each one starts; the reason when there is no way to place them all."""
    _check_counts(wanted, name)
    order = sorted(wanted, key=lambda one: -one.memory_slices)
    starts = _search(order, frozenset())
    if starts is None:
        raise InfeasibleError(
            f"these profiles do not fit on one {name} together",
            lines=(
                (
                    "reason",
                    "each may start only at certain memory slices, and no arrangement leaves all free",
                ),
            ),
        )
    return tuple((one.profile, start) for one, start in zip(order, starts, strict=True))


def _check_counts(wanted: Sequence[Partition], name: str) -> None:
    if wanted[0].kind == AMD and len({one.profile for one in wanted}) > 1:
        modes = " and ".join(sorted({one.profile for one in wanted}))
        raise InfeasibleError(
            f"one {name} cannot be in {modes} at once",
            lines=(("reason", "a mode holds for the whole device"),),
        )
    for profile, count in Counter(wanted).items():
        if count > profile.count_max:
            raise InfeasibleError(
                f"{count} × {profile.profile} do not fit on one {name}",
                lines=(("reason", f"a device holds at most {profile.count_max} of them"),),
            )
    for what in ("compute", "memory"):
        needed = sum(getattr(one, f"{what}_slices") for one in wanted)
        total = getattr(wanted[0], f"{what}_slices_total")
        if needed > total and wanted[0].kind != AMD:
            raise InfeasibleError(
                f"these profiles do not fit on one {name}",
                lines=(("reason", f"they take {needed} {what} slices; the device has {total}"),),
            )


def _search(order: Sequence[Partition], taken: frozenset[int]) -> list[int] | None:
    """First starts, largest partition first, at which none overlaps; a device has at most 8 slices."""
    if not order:
        return []
    first, *rest = order
    for start in map(int, first.starts.split()):
        slices = frozenset(range(start, start + first.memory_slices))
        if not slices & taken:
            below = _search(rest, taken | slices)
            if below is not None:
                return [start, *below]
    return None
