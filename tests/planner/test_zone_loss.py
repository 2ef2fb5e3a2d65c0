"""What the loss of a zone asks of a fleet, and work that waits: neither doubles it where nobody asks."""

from collections.abc import Callable

import pytest

from twofold.contracts.results.plan import Plan
from twofold.contracts.results.serving import ServicePlan

SPEC = """
name: zones
model: llama-3.1-8b
serving:
  zones: {zones}
  classes:
    chat:
      traffic: {{rate: 60 /s, peak: 3x}}
      slo: {{ttft_p95: 1 s, tpot_p95: 60 ms}}{chat}
    nightly:
      traffic: {{tokens_per_day: 3 Gtok}}
      slo: {{finish_within: 8 h}}{nightly}
supply: {{shop: {{accelerators: [H100-SXM5-80GB]}}}}
"""
KEY = "\n      on_zone_loss: "


@pytest.fixture
def service(planned: Callable[[str], Plan]) -> Callable[..., ServicePlan]:
    def of(zones: int, chat: str = "", nightly: str = "") -> ServicePlan:
        said = {"chat": chat and KEY + chat, "nightly": nightly and KEY + nightly}
        return planned(SPEC.format(zones=zones, **said)).serving[0]

    return of


def spares(service: ServicePlan) -> dict[str, int]:
    return {pool.name: pool.spare_count for pool in service.pools}


def test_a_class_that_degrades_has_the_spares_of_one_zone(service: Callable[..., ServicePlan]) -> None:
    one, two = service(1), service(2, chat="degrade")
    assert spares(two) == spares(one)
    assert two.replica_count == one.replica_count


def test_a_class_that_holds_outlasts_its_fullest_zone(service: Callable[..., ServicePlan]) -> None:
    held = service(2, nightly="hold")
    for pool in held.pools:
        assert pool.spare_count >= pool.replica_count - pool.spare_count  # two zones: each carries all
    assert "may wait" not in held.spare_reason


def test_who_waits_is_held_and_work_of_a_day_degrades_unless_told(
    service: Callable[..., ServicePlan],
) -> None:
    usual = service(2)
    assert spares(usual)["chat"] == spares(service(2, nightly="hold"))["chat"]
    assert spares(usual)["nightly"] == spares(service(1))["nightly"]
    assert usual.spare_reason.endswith("one of 2 zones may fail; nightly may wait for it")


def test_work_of_a_day_takes_no_machines_of_its_own(service: Callable[..., ServicePlan]) -> None:
    """It fits into the hours in which others ask less than at the peak for which machines are held."""
    usual = service(1)
    sizes = {pool.name: pool.replica_count * pool.replica.accelerator_count for pool in usual.pools}
    assert usual.in_valleys == ("nightly",)
    assert usual.machine.accelerator_count < sum(sizes.values())
    assert usual.machine.accelerator_count >= max(sizes.values())


def test_your_own_machines_carry_work_of_a_day_between_the_others(planned: Callable[[str], Plan]) -> None:
    text = SPEC.format(zones=1, chat="", nightly="").rpartition("supply:")[0]

    def on_own(count: int) -> ServicePlan:
        return planned(f"{text}supply: {{own: [{{accelerator: H100-SXM, count: {count}}}]}}\n").serving[0]

    usual = on_own(64)
    sizes = {pool.name: pool.replica_count * pool.replica.accelerator_count for pool in usual.pools}
    assert usual.machine.price is None and usual.in_valleys == ("nightly",)
    least = usual.machine.accelerator_count
    assert max(sizes.values()) <= least < sum(sizes.values())
    assert on_own(least).machine == usual.machine  # as many as that carry it
    assert usual.energy_j_per_year.value < on_own(least).machine.accelerator_count * 1500 * 365 * 86400


def test_without_quieter_hours_nothing_is_shared(planned: Callable[[str], Plan]) -> None:
    """Flat traffic has no valleys, and quiet weekends are none of a working day."""
    text = SPEC.format(zones=1, chat="", nightly="").rpartition("supply:")[0]
    own = f"{text}supply: {{own: [{{accelerator: H100-SXM, count: 64}}]}}\n"
    flat = planned(own.replace("peak: 3x", "peak: 3x, profile: flat")).serving[0]
    sizes = [pool.replica_count * pool.replica.accelerator_count for pool in flat.pools]
    assert flat.machine.accelerator_count == sum(sizes) and not flat.in_valleys
    usual = planned(own).serving[0].machine.accelerator_count
    business = planned(own.replace("peak: 3x", "peak: 3x, profile: business")).serving[0]
    assert usual <= business.machine.accelerator_count <= sum(sizes)
