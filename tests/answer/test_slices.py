"""Slices of a device as machines of their own: what they hold, how fast they are, what they never do."""

import re
from itertools import permutations
from typing import Any

import pytest

import twofold
from twofold.answer.offers import training_offers
from twofold.answer.serve_answer import ServingEstimate
from twofold.catalog.catalog import load_catalog
from twofold.catalog.types import Partition
from twofold.contracts.spec.supply import Shop, Supply
from twofold.core.errors import InfeasibleError, InputError

CATALOG = load_catalog()
DEVICE = "H100-SXM5-80GB"
PROFILES = [part for part in CATALOG.partitions(DEVICE) if not part.profile.endswith("+me")]
CUT = sorted({part.accelerator for part in CATALOG.rows(Partition)})


def served(accelerator: str, **more: Any) -> ServingEstimate:
    asked = {"input_tokens": "500", "output_tokens": "100", "concurrency": 4} | more
    answer = twofold.estimate.serve("qwen3-0.6b", f"1x{accelerator}", **asked).data
    assert isinstance(answer, ServingEstimate)
    return answer


def test_a_smaller_slice_never_holds_more_and_never_serves_faster() -> None:
    found = {part.profile: (part, served(f"{DEVICE}:{part.profile}")) for part in PROFILES}
    for (small, less), (large, more) in permutations(found.values(), 2):
        if small.memory_slices <= large.memory_slices and small.compute_slices <= large.compute_slices:
            assert less.max_sequences.value <= more.max_sequences.value
            assert less.output_tokens_per_s.value <= more.output_tokens_per_s.value
            for name in ("ttft_p95", "tpot_p95", "e2e_p95"):
                assert less.percentiles[name].value >= more.percentiles[name].value


def test_the_slice_of_the_whole_device_is_the_device() -> None:
    assert served(f"{DEVICE}:7g.80gb") == served(DEVICE)


@pytest.mark.parametrize("name", CUT)
def test_all_slices_of_a_device_have_no_more_than_it(name: str) -> None:
    device = CATALOG.accelerator(name)
    for part in CATALOG.partitions(name):
        one, count = CATALOG.accelerator(f"{name}:{part.profile}"), part.count_max
        for field in ("memory_bytes", "memory_bytes_per_s", "bf16_flops_per_s", "tdp_w"):
            whole = getattr(device, field) or 0.0
            # Seven slices of an H100 that are counted by their SMs leave some out; none has more.
            assert count * (getattr(one, field) or 0.0) <= whole * (1.0 + 1e-9)


def test_a_share_of_a_price_is_assumed_and_adds_up_to_the_price() -> None:
    slices, whole = CATALOG.prices_for(f"{DEVICE}:1g.10gb"), CATALOG.prices_for(DEVICE)
    for share, price in zip(slices, whole, strict=True):
        assert share.usd_per_accelerator_h * 7 == pytest.approx(price.usd_per_accelerator_h)
        assert share.usd_per_h == price.usd_per_h and share.confidence == "assumed"
    price = served(f"{DEVICE}:1g.10gb").machine.price
    assert price is not None and price.usd_per_accelerator_h.source.value == "a"


def test_a_model_that_fits_no_slice_is_not_split_over_slices() -> None:
    asked = {"input_tokens": "500", "output_tokens": "100", "concurrency": 4}
    with pytest.raises(InfeasibleError, match="does not fit") as error:
        twofold.estimate.serve("llama-3.1-8b", f"7x{DEVICE}:1g.10gb", **asked)
    assert "a larger slice" in dict(error.value.lines)["would fit"]
    assert twofold.estimate.serve("llama-3.1-8b", f"7x{DEVICE}:2g.20gb", **asked)


@pytest.mark.parametrize("stated", [{"tp": 2}, {"pp": 2}])
def test_slices_share_no_model(stated: dict[str, int]) -> None:
    with pytest.raises(InputError, match="agrees"):
        served(f"7x{DEVICE}:1g.10gb", **stated)
    answer = twofold.estimate.serve(
        "qwen3-0.6b", f"7x{DEVICE}:1g.10gb", input_tokens="500", output_tokens="100", concurrency=70
    ).data
    assert isinstance(answer, ServingEstimate)
    assert (answer.replica.tp, answer.replica.pp, answer.replica.dp) == (1, 1, 7)


def test_partitions_of_amd_work_on_one_model() -> None:
    answer = twofold.estimate.serve(
        "llama-3.1-8b", "8xMI300X:CPX", input_tokens="500", output_tokens="100", concurrency=4, tp=8
    ).data
    assert isinstance(answer, ServingEstimate) and answer.replica.tp == 8


def test_slices_train_alone() -> None:
    asked = {"batch": "8 seq", "sequence": "1024 tok", "kind": "lora"}
    assert twofold.estimate.train("qwen3-0.6b", f"1x{DEVICE}:2g.20gb", **asked)
    with pytest.raises(InputError, match="slices have no links"):
        twofold.estimate.train("qwen3-0.6b", f"7x{DEVICE}:1g.10gb", **asked)


def spec(rest: str, model: str = "qwen3-0.6b") -> str:
    classes = "classes: {chat: {traffic: {rate: 2 /s, input: 500 tok, output: 100 tok}}}"
    return f"model: {model}\nserving:\n  {classes}\n{rest}\n"


def test_a_plan_has_one_replica_on_each_slice() -> None:
    (service,) = twofold.plan(spec(f"  on: 7x{DEVICE}:1g.10gb")).serving
    assert service.machine.accelerator == f"{DEVICE}:1g.10gb"
    assert {pool.replica.accelerator_count for pool in service.pools} == {1}
    assert any("is a share" in warning for warning in service.warnings)
    assert service.machine.price is not None
    assert service.machine.price.usd_per_accelerator_h.source.value == "a"
    (whole,) = twofold.plan(spec(f"  on: 1x{DEVICE}")).serving
    assert service.cost_usd_per_year is not None and whole.cost_usd_per_year is not None
    slo = service.classes[0].slos[0]
    assert slo.predicted is not None and whole.classes[0].slos[0].predicted is not None
    assert slo.predicted.value >= whole.classes[0].slos[0].predicted.value


def test_a_plan_says_that_a_larger_slice_would_fit() -> None:
    with pytest.raises(InfeasibleError) as error:
        twofold.plan(spec(f"  on: 7x{DEVICE}:1g.10gb", "llama-3.1-8b"))
    assert "a larger slice" in dict(error.value.lines)["would fit"]


def test_slices_are_owned_and_rented_where_they_are_named() -> None:
    owned = twofold.plan(spec("supply: {own: [{node: 'DGX-H100:1g.10gb', count: 1}]}")).serving[0]
    assert owned.machine.accelerator == f"{DEVICE}:1g.10gb" and owned.machine.price is None
    shop = "supply: {shop: {accelerators: [L4:L4-6C]}}"
    assert twofold.plan(spec(shop)).serving[0].machine.accelerator == "L4:L4-6C"


@pytest.mark.parametrize(
    ("on", "said"),
    [
        (f"1x{DEVICE}:9g.90gb", "1g.10gb, 1g.10gb\\+me, 1g.20gb, 2g.20gb"),
        ("2xDGX-H100:1g.10gb", "DGX-H100"),
        ("1xA10G:1g.6gb", "not cut into slices"),
        ("1xH1000:1g.10gb", "not a known accelerator"),
    ],
)
def test_errors_name_the_profiles_that_exist(on: str, said: str) -> None:
    with pytest.raises(InputError) as error:
        twofold.plan(spec(f"  on: {on}"))
    (one,) = error.value.errors
    assert re.search(said, f"{one.message} {one.hint}")


def test_types_of_vgpus_are_equal_shares() -> None:
    whole, part = CATALOG.accelerator("L40S"), CATALOG.accelerator("L40S:L40S-12C")
    assert part.memory_bytes * 4 == pytest.approx(whole.memory_bytes)
    assert part.works_alone and not whole.works_alone
    assert CATALOG.accelerator("L40S:L40S-48C") == whole


def test_an_offer_of_slices_is_for_no_training() -> None:
    found = training_offers(CATALOG, Supply(shop=Shop(accelerators=(f"{DEVICE}:3g.40gb",))))
    assert not found.offers and "a slice" in found.left_out[0].why
