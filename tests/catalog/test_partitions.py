"""Cuts are those the vendor allows, requests that do not fit say why, and a part is a smaller device."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.catalog.catalog import load_catalog
from twofold.catalog.partitions import (
    PartitionRefused,
    check_partition_request,
    legal_partitions,
)
from twofold.catalog.types import Accelerator
from twofold.core.errors import InputError, UnknownNameError

CATALOG = load_catalog()
CUTTABLE = [a.name for a in CATALOG.rows(Accelerator) if CATALOG.partitions(a.name)]
MIG = [name for name in CUTTABLE if CATALOG.partitions(name)[0].kind == "mig"]
PROFILES = [part.profile for part in CATALOG.partitions("H100 SXM")]


def slices_of(name: str, cut: tuple) -> list[int]:  # type: ignore[type-arg]
    sizes = {part.profile: part.memory_slices for part in CATALOG.partitions(name)}
    return [slice for placed in cut for slice in range(placed.start, placed.start + sizes[placed.profile])]


def test_a_seven_slice_device_has_the_nineteen_published_cuts() -> None:
    # NVIDIA MIG user guide, figure of supported A100 profiles: 18 combinations of halves, and the whole.
    for name in ("A100-SXM4-80GB", "H100 SXM", "H200", "B200"):
        assert len(legal_partitions(CATALOG, name)) == 19, name
    cuts = [[placed.profile for placed in cut] for cut in legal_partitions(CATALOG, "H100 SXM")]
    assert ["7g.80gb"] in cuts and ["1g.10gb"] * 7 in cuts and ["4g.40gb", "3g.40gb"] in cuts
    assert ["3g.40gb", "3g.40gb"] in cuts and ["2g.20gb", "2g.20gb", "2g.20gb", "1g.10gb"] in cuts


@pytest.mark.parametrize("name", CUTTABLE)
def test_no_cut_overlaps_or_exceeds_the_device(name: str) -> None:
    cuts = legal_partitions(CATALOG, name)
    assert cuts
    parts = {part.profile: part for part in CATALOG.partitions(name)}
    for cut in cuts:
        taken = slices_of(name, cut)
        assert len(taken) == len(set(taken))
        assert max(taken) < parts[cut[0].profile].memory_slices_total
        assert sum(parts[p.profile].compute_slices for p in cut) <= parts[cut[0].profile].compute_slices_total


@pytest.mark.parametrize("name", CUTTABLE)
def test_every_legal_cut_is_accepted_as_a_request(name: str) -> None:
    for cut in legal_partitions(CATALOG, name):
        assert not isinstance(
            check_partition_request(CATALOG, name, [p.profile for p in cut]), PartitionRefused
        )


def test_the_whole_device_and_one_more_slice_is_refused_with_the_reason() -> None:
    refused = check_partition_request(CATALOG, "H100 SXM", ["7g.80gb", "1g.10gb"])
    assert refused == PartitionRefused("7g.80gb + 1g.10gb need 8 compute slices; H100-SXM5-80GB has 7")


@pytest.mark.parametrize(
    ("profiles", "reason"),
    [
        (["3g.40gb", "3g.40gb", "1g.10gb"], "need 9 memory slices"),
        (["4g.40gb", "4g.40gb"], "need 8 compute slices"),
        (["1g.10gb+me", "1g.10gb+me"], "holds 1 × 1g.10gb+me, not 2"),
        (["3g.40gb", "2g.20gb", "2g.20gb"], ""),
        (["1g.10gb"] * 8, "need 8 compute slices"),
        (["4g.40gb", "1g.20gb", "1g.20gb", "1g.10gb"], "need 9 memory slices"),
    ],
)
def test_requests_are_placed_or_refused_by_what_binds(profiles: list[str], reason: str) -> None:
    answer = check_partition_request(CATALOG, "H100 SXM", profiles)
    assert isinstance(answer, PartitionRefused) == bool(reason)
    if isinstance(answer, PartitionRefused):
        assert reason in answer.reason


@given(st.lists(st.sampled_from(PROFILES), min_size=1, max_size=8))
def test_what_is_placed_does_not_overlap_and_leaving_one_out_still_fits(profiles: list[str]) -> None:
    answer = check_partition_request(CATALOG, "H100 SXM", profiles)
    if isinstance(answer, PartitionRefused):
        assert answer.reason
        return
    taken = slices_of("H100 SXM", answer)
    assert len(taken) == len(set(taken)) and sorted(p.profile for p in answer) == sorted(profiles)
    if len(profiles) > 1:
        assert not isinstance(check_partition_request(CATALOG, "H100 SXM", profiles[1:]), PartitionRefused)


def test_amd_devices_list_their_modes_and_limits() -> None:
    modes = {part.profile: part for part in CATALOG.partitions("MI300X")}
    assert [modes[name].count_max for name in ("SPX", "DPX", "QPX", "CPX")] == [1, 2, 4, 8]
    assert modes["CPX"].memory_modes == "NPS1 NPS4" and modes["SPX"].memory_modes == "NPS1"
    mixed = check_partition_request(CATALOG, "MI300X", ["CPX", "DPX"])
    assert isinstance(mixed, PartitionRefused) and "one compute mode at a time" in mixed.reason
    many = check_partition_request(CATALOG, "MI300X", ["CPX"] * 9)
    assert isinstance(many, PartitionRefused) and "makes 8 partitions" in many.reason


@pytest.mark.parametrize("name", CUTTABLE)
def test_parts_never_add_up_to_more_than_the_device(name: str) -> None:
    whole = CATALOG.accelerator(name)
    for profile in CATALOG.partitions(name):
        part = CATALOG.accelerator(f"{name}:{profile.profile}")
        assert part.memory_bytes * profile.count_max <= whole.memory_bytes * 1.001
        assert part.memory_bytes_per_s * profile.count_max <= whole.memory_bytes_per_s * 1.001
        assert (part.bf16_flops_per_s or 0) * profile.count_max <= (whole.bf16_flops_per_s or 0) * 1.001
        assert part.tdp_w <= whole.tdp_w


def test_a_partition_is_a_device_without_links() -> None:
    part = CATALOG.accelerator("H100 SXM:1g.10gb")
    assert part.name == "H100-SXM5-80GB:1g.10gb"
    assert part.sm_count == 16 and part.scaleup_bytes_per_s == 0 and part.scaleup_domain_count == 1
    assert part.memory_bytes == pytest.approx(CATALOG.accelerator("h100").memory_bytes / 8)
    assert CATALOG.accelerator("H100 SXM:7g.80gb") == CATALOG.accelerator("H100 SXM")


def test_a_partition_is_planned_with_like_any_device() -> None:
    name = "h100:1g.10gb"
    part = CATALOG.accelerator(name)
    assert part == CATALOG.accelerator("H100 SXM:1g.10gb") == CATALOG.accelerator(part.name)
    whole = {node.name: node for node in CATALOG.nodes_with("h100")}
    cut = CATALOG.nodes_with(name)
    assert len(cut) == len(whole)
    for node in cut:
        assert CATALOG.node(node.name) == node and node.accelerator == part.name
        assert node.accelerator_count == 7 * whole[node.name.split(":")[0]].accelerator_count
    for price in CATALOG.prices_for(name):
        assert price.usd_per_accelerator_h * price.accelerator_count == pytest.approx(
            price.usd_per_h, rel=0.01
        )
    with pytest.raises(UnknownNameError):
        CATALOG.accelerator("h100:9g")


def test_unknown_profiles_and_whole_devices_are_errors() -> None:
    with pytest.raises(UnknownNameError) as error:
        CATALOG.accelerator("H100 SXM:3g.20gb")
    assert "`3g.40gb`" in error.value.hint
    with pytest.raises(UnknownNameError):
        CATALOG.accelerator("A10G:1g.6gb")
    with pytest.raises(InputError):
        check_partition_request(CATALOG, "H100 SXM", [])
    assert legal_partitions(CATALOG, "A10G") == ()
