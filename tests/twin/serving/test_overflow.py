"""A hosted API beside the fleet in the twin: timed and priced as it states, by the gate's own decisions."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from twofold.policy.gate.settings import GateSettings, OverflowSettings
from twofold.twin.serving.engine_types import EngineWork, Finished, FirstToken
from twofold.twin.serving.fleet import simulate_fleet
from twofold.twin.serving.fleet_types import Arrival, FleetWorld, RequestRecord
from twofold.twin.serving.hosted import HostedApi

HOSTED = OverflowSettings(
    in_flight_limit=100,
    first_token_s=0.4,
    output_token_s=0.01,
    usd_per_input_mtok=1.0,
    usd_per_output_mtok=10.0,
)
BURST = [Arrival(1.0 + 0.001 * number, 100, 21) for number in range(40)]


def run(world: FleetWorld) -> tuple[RequestRecord, ...]:
    records: list[RequestRecord] = []
    simulate_fleet(world, BURST, records.append)
    return tuple(records)


def test_what_finds_no_place_is_answered_there_at_its_stated_times(
    fixed_world: Callable[..., FleetWorld],
) -> None:
    plain = fixed_world(in_flight_limit=4)
    refused = [each for each in run(plain) if each.outcome == "refused: full"]
    assert refused, "the burst is more than the fleet has places for"
    gate = GateSettings(overflow=HOSTED)
    records = run(replace(plain, gate=gate))
    assert all(each.outcome == "finished" for each in records)
    there = [each for each in records if each.replica_id == "overflow"]
    assert len(there) >= len(refused)
    for each in there:
        assert each.ttft_s == pytest.approx(0.4 + 2 * plain.network_s, abs=1e-6)
        assert each.e2e_s == pytest.approx(0.4 + 20 * 0.01 + 2 * plain.network_s, abs=1e-6)
    result = simulate_fleet(replace(plain, gate=gate), BURST).figures
    assert result.overflowed_count == len(there)
    assert result.overflow_usd == pytest.approx(len(there) * (100 * 1.0 + 21 * 10.0) / 1e6)
    assert result.cost_usd is not None and result.cost_usd >= result.overflow_usd
    without = simulate_fleet(plain, BURST).figures
    assert without.overflowed_count is None and without.overflow_usd is None


def test_a_hosted_api_answers_as_many_as_ask_and_nothing_of_who_left() -> None:
    api = HostedApi(0.5, 0.1)
    for key in (1, 2, 3):
        api.submit(EngineWork(key, 10, 3), float(key))
    api.cancel(2, 3.1)
    assert api.next_at_s() == 1.5
    told = api.advance(10.0)
    assert told == [FirstToken(1, 1.5), Finished(1, pytest.approx(1.7), 3), FirstToken(3, 3.5), told[3]]
    assert told[3] == Finished(3, pytest.approx(3.7), 3) and api.next_at_s() is None
    assert api.report()[0] == 0
