"""Cutting one device into several: which cuts are legal, why a request is not, what device a part is."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from twofold.catalog.catalog import Catalog
from twofold.catalog.parts import find_profile
from twofold.catalog.types import Partition
from twofold.core.errors import InputError

MEDIA_ENGINES = "+me"
EQUAL_PARTS = ("amd", "vgpu")  # kinds of which one device has one mode, or one type, at a time
MODES = {"amd": "in one compute mode at a time", "vgpu": "shared as one type at a time"}


@dataclass(frozen=True, slots=True)
class Placement:
    """One partition at one place: `start` is its first memory slice."""

    profile: str
    start: int


@dataclass(frozen=True, slots=True)
class PartitionRefused:
    """Why a set of profiles does not fit on one device."""

    reason: str


def legal_partitions(catalog: Catalog, accelerator_name: str) -> tuple[tuple[Placement, ...], ...]:
    """Every full cut of the device: placements to which nothing can be added, largest part first.

    MIG: partitions must not overlap in memory slices and start only where their profile may. Profiles that
    differ only in media engines or memory give the same cuts and are left out. AMD and vGPUs: all parts of a
    device are equal, so each compute mode or type is one cut.
    """
    profiles = catalog.partitions(accelerator_name)
    if not profiles:
        return ()
    if profiles[0].kind in EQUAL_PARTS:
        return tuple(tuple(Placement(part.profile, start) for start in _starts(part)) for part in profiles)
    # The profile that stands for its compute size: no media engines, the least memory.
    least: dict[int, int] = {}
    for part in profiles:
        least[part.compute_slices] = min(
            part.memory_slices, least.get(part.compute_slices, part.memory_slices)
        )
    plain = [
        part
        for part in profiles
        if not part.profile.endswith(MEDIA_ENGINES) and part.memory_slices == least[part.compute_slices]
    ]
    size = {part.profile: part.compute_slices for part in plain}
    return tuple(sorted(_fill(plain, 0), key=lambda cut: [-size[placed.profile] for placed in cut]))


def check_partition_request(
    catalog: Catalog, accelerator_name: str, profiles: Sequence[str]
) -> tuple[Placement, ...] | PartitionRefused:
    """Where the requested profiles go on one device, or why they cannot.

    An unknown profile, or a device that cannot be cut, is an error; a request that does not fit is an answer.
    """
    device = catalog.accelerator(accelerator_name)
    known = catalog.partitions(accelerator_name)
    if not profiles:
        raise InputError("no profile was requested", hint="write for example `3g.40gb`")
    return place_parts([find_profile(device, known, name) for name in profiles])


def place_parts(parts: Sequence[Partition]) -> tuple[Placement, ...] | PartitionRefused:
    """Where parts of one accelerator's profiles go on one device of it, or why they cannot. At least one."""
    if parts[0].kind in EQUAL_PARTS:
        return _check_modes(parts)
    refused = _refused_by_counts(parts)
    if refused:
        return refused
    placed = _place(sorted(parts, key=lambda part: -part.memory_slices), ())
    if placed is None:
        starts = ", ".join(f"{part.profile} at {part.starts.replace(' ', '/')}" for part in _unique(parts))
        of_all = f"{starts} of {parts[0].memory_slices_total}"
        return PartitionRefused(f"no placement: memory slices would overlap ({of_all})")
    return tuple(sorted(placed, key=lambda place: place.start))


def _starts(part: Partition) -> list[int]:
    return [int(start) for start in part.starts.split()]


def _unique(parts: Sequence[Partition]) -> list[Partition]:
    return list({part.profile: part for part in parts}.values())


def _fill(parts: Sequence[Partition], start: int) -> set[tuple[Placement, ...]]:
    """All ways to fill the slices from `start` on, leaving out only where nothing may begin."""
    total = parts[0].memory_slices_total
    if start >= total:
        return {()}
    here = [part for part in parts if start in _starts(part) and start + part.memory_slices <= total]
    if not here:
        return _fill(parts, start + 1)
    return {
        (Placement(part.profile, start), *rest)
        for part in here
        for rest in _fill(parts, start + part.memory_slices)
    }


def _refused_by_counts(parts: Sequence[Partition]) -> PartitionRefused | None:
    """The plain reasons first: too many slices in all, or too many of one profile."""
    asked = " + ".join(part.profile for part in parts)
    for what in ("compute", "memory"):
        needed = sum(getattr(part, f"{what}_slices") for part in parts)
        total = getattr(parts[0], f"{what}_slices_total")
        if needed > total:
            there = f"{parts[0].accelerator} has {total}"
            return PartitionRefused(f"{asked} need {needed} {what} slices; {there}")
    counts = Counter(part.profile for part in parts)
    for part in parts:
        if counts[part.profile] > part.count_max:
            most = f"{part.accelerator} holds {part.count_max} × {part.profile}"
            return PartitionRefused(f"{most}, not {counts[part.profile]}")
    media = sum(part.profile.endswith(MEDIA_ENGINES) for part in parts)
    if media > 1:
        return PartitionRefused(f"only one partition may have the media engines, not {media}")
    return None


def _place(
    parts: Sequence[Partition], taken: tuple[Placement, ...], used: frozenset[int] = frozenset()
) -> tuple[Placement, ...] | None:
    """The first placement of all parts without overlap, found by trying; at most eight slices."""
    if not parts:
        return taken
    part, *rest = parts
    for start in _starts(part):
        slices = frozenset(range(start, start + part.memory_slices))
        if not slices & used:
            placed = _place(rest, (*taken, Placement(part.profile, start)), used | slices)
            if placed is not None:
                return placed
    return None


def _check_modes(parts: Sequence[Partition]) -> tuple[Placement, ...] | PartitionRefused:
    """AMD and vGPUs: one mode or type for the whole device, and no more parts than it has."""
    modes = _unique(parts)
    if len(modes) > 1:
        names = " and ".join(part.profile for part in modes)
        return PartitionRefused(f"{parts[0].accelerator} is {MODES[parts[0].kind]}, not {names}")
    if len(parts) > modes[0].count_max:
        return PartitionRefused(f"{modes[0].profile} makes {modes[0].count_max} partitions, not {len(parts)}")
    return tuple(
        Placement(part.profile, start) for part, start in zip(parts, _starts(modes[0]), strict=False)
    )
