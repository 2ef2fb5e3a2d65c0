"""Loads on a stand-in whose pace and capacity are known: what is sent when, and the figures of it."""

import pytest

from tests.openai_service import Service, served
from twofold.contracts.results.served import Latency, Ranged, ServedLoad
from twofold.contracts.rows.trace_rows import Arrival
from twofold.core.errors import ValueRefusedError
from twofold.live.loads import measured_loads
from twofold.live.loads.endpoint import reach
from twofold.live.loads.loader import Endpoint, Prompt
from twofold.live.loads.measured_loads import Loading, closed, find_knee, opened, replayed, warm_up
from twofold.live.loads.serving_figures import knee_of
from twofold.live.loads.texts import texts_of

pytest.importorskip("aiohttp", reason="needs the extra [live]: `make extras`")
pytest.importorskip("uvloop", reason="needs the extra [live]: `make extras`")


def loading(service: Service, **other: object) -> Loading:
    endpoint = reach(service.url, Prompt("0123456789", 5)).endpoint
    service.asked.clear()
    told = {"input_tokens": 20, "output_tokens": 3, "duration_s": 0.5, "seed": 3} | other
    return Loading(endpoint, texts_of(3), **told)  # type: ignore[arg-type]


def test_a_closed_load_counts_tokens_as_the_server_does_and_knows_the_pace() -> None:
    with served(Service(gap_s=0.02, characters_per_token=2.0)) as service:
        load = closed(loading(service), 2)
    assert (load.name, load.kind, load.concurrency, load.lengths) == ("closed-2", "closed", 2, "fixed")
    assert load.sent == load.finished == len(service.asked) and load.finished and load.finished >= 4
    assert load.input_tokens == 40 and load.output_tokens == 3  # four characters a token asked, two counted
    assert load.ttft and load.tpot and load.e2e and load.e2e.p50_s
    assert load.ttft.mean_s and 0.02 <= load.ttft.mean_s < load.e2e.p50_s.value
    assert load.tpot.mean_s and load.tpot.mean_s >= 0.02
    assert load.lag_s_max is None  # nothing is due in a closed loop
    assert load.client_cpu_fraction is not None and 0 < load.client_cpu_fraction <= 1.2
    assert len({asked["prompt"] for asked in service.asked}) == load.sent  # no cache helps


def test_an_answer_that_waits_for_others_counts_from_when_it_was_due() -> None:
    """One at a time of 60 ms each at 40/s: the queue grows, and closed loops would not have seen it."""
    with served(Service(gap_s=0.02, slots=1)) as service:
        load = opened(loading(service), 40.0)
    assert load.sent == load.finished and load.sent and load.sent > 10
    assert load.e2e and load.e2e.p95_s and load.e2e.p95_s.value >= 0.06 * 0.5 * load.sent
    assert load.lag_s_max is not None and load.lag_s_p99 is not None and load.lag_s_max >= load.lag_s_p99 >= 0


def test_what_is_lost_is_told_by_its_status() -> None:
    with served(Service()) as service:
        asked = loading(service)
        service.statuses = (429, 500, 500)
        load = opened(asked, 40.0)
    assert (load.refused, load.failed) == (1, 2) and load.reasons == (("500", 2), ("429", 1))
    assert load.sent and load.lost_fraction == pytest.approx(3 / load.sent)


def test_bursts_come_together_at_the_same_rate() -> None:
    with served(Service()) as service:
        load = opened(loading(service, duration_s=1.0), 60.0, burst_count=10)
    assert load.kind == "bursts" and load.name == "bursts-60x10"
    assert load.sent and load.sent % 10 == 0


def test_a_trace_is_replayed_with_its_own_lengths_as_fast_as_told() -> None:
    arrivals = [Arrival(number * 0.2, 10.0 + number, 1.0 + number) for number in range(10)]
    with served(Service(characters_per_token=4.0)) as service:
        load = replayed(loading(service, duration_s=0.45), iter(arrivals), scale=2.0)
    assert load.name == "replay-2x" and load.lengths == "trace"
    assert load.sent == load.finished == 5  # those due before 0.45 s: every 0.1 s
    assert [asked["max_tokens"] for asked in service.asked] == [1, 2, 3, 4, 5]
    assert [len(asked["prompt"]) for asked in service.asked] == [40, 44, 48, 52, 56]
    assert load.rate_per_s == pytest.approx(5 / 0.45)


def test_no_rate_above_what_a_service_can_do_is_said_to_hold() -> None:
    """Four at a time of 40 ms each: 100/s is all that it can do."""
    with served(Service(gap_s=0.04, slots=4)) as service:
        asked = loading(service, output_tokens=1, duration_s=0.8)
        loads = [opened(asked, rate_per_s) for rate_per_s in (10.0, 400.0)]
    knee = knee_of(loads, 0.3, "ttft")
    assert knee and knee.broken_per_s and (knee.rate_per_s or 0.0) <= 10.0


@pytest.mark.parametrize("capacity_per_s", [0.5, 1.0, 7.0, 100.0, 1e9])
def test_the_search_for_the_knee_doubles_and_then_halves_the_gap(
    capacity_per_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    def held(_: Loading, rate_per_s: float) -> ServedLoad:
        p95_s = 0.1 if rate_per_s <= capacity_per_s else 9.0
        latency = Latency(p95_s, Ranged(p95_s), Ranged(p95_s), Ranged(p95_s))
        return ServedLoad(f"open-{rate_per_s:g}", "open", None, rate_per_s, ttft=latency, e2e=latency)

    monkeypatch.setattr(measured_loads, "opened", held)
    asked = Loading(Endpoint(""), texts_of(0), 1, 1, 1.0, 0)
    loads = find_knee(asked, 1.0, 1.0, "ttft", lambda _: None)
    knee = knee_of(loads, 1.0, "ttft")
    rates = [load.rate_per_s or 0.0 for load in loads]
    assert rates == sorted(rates) and len(rates) <= 14 and knee
    if capacity_per_s < 1.0:
        assert rates == [1.0] and knee.rate_per_s is None
    elif capacity_per_s > 1e6:
        assert knee.rate_per_s == 512.0 and knee.broken_per_s is None  # ten rates, each twice the last
    else:
        assert knee.rate_per_s and knee.broken_per_s
        assert knee.rate_per_s <= capacity_per_s < knee.broken_per_s <= knee.rate_per_s * (1 + 1 / 16)


def test_a_service_that_finishes_nothing_is_told_before_the_loads() -> None:
    with served(Service()) as service:
        asked = loading(service)
        service.statuses = (400,) * 2
        with pytest.raises(ValueRefusedError, match="finished no request: 400"):
            warm_up(asked)
    with pytest.raises(ValueRefusedError, match="no request comes"):
        opened(Loading(asked.endpoint, asked.texts, 20, 3, 0.001, 0), 0.5)


def test_r_124_more_clients_bring_more_tokens_until_the_slots_are_full_and_then_longer_tails() -> None:
    """Four slots whose tokens take 20 ms: what each number of clients can get is known beforehand."""
    with served(Service(gap_s=0.02, slots=4)) as service:
        asked = loading(service, duration_s=1.0)
        one, four, twelve = (closed(asked, clients) for clients in (1, 4, 12))
    rates = [each.output_tokens_per_s for each in (one, four, twelve)]
    assert all(rates) and rates[0] is not None and rates[0] <= 1 / 0.02
    assert 2.0 * rates[0] < rates[1] <= 4 / 0.02 and rates[2] <= 4 / 0.02
    tails = [(each.e2e.p50_s.value, each.e2e.p95_s.value) for each in (one, four, twelve)]
    assert all(0.06 <= middle <= tail for middle, tail in tails)
    assert tails[2][0] > 1.5 * tails[1][0]  # eight of twelve wait
