"""Series as text: bounded, read by Prometheus' own reader, and the engines' under their own names."""

import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.live.outcomes import outcome_of
from twofold.live.gateway.counters import OTHERS, TENANTS_MAX, ZONES_MAX, Counters
from twofold.live.gateway.telemetry import FINISHED, REFUSED, Outcome, Telemetry
from twofold.live.metrics_text import Histogram, with_label
from twofold.policy.gate.events import (
    Cause,
    Degrade,
    GiveUp,
    Hold,
    RefusalReason,
    Refuse,
    ReplicaAdded,
    RequestArrived,
    Send,
    StageRelease,
)
from twofold.policy.gate.gate import Gate
from twofold.policy.gate.settings import Beliefs, ClassSettings, GateSettings

CHAT = ClassSettings("chat", ttft_slo_s=0.3, tpot_slo_s=0.042)


def answered(tenant: str = "", ttft_s: float = 0.1, output_tokens: int = 11) -> Outcome:
    e2e_s = ttft_s + 0.02 * (output_tokens - 1)
    return outcome_of(tenant=tenant, output_tokens=output_tokens, ttft_s=ttft_s, e2e_s=e2e_s)


def page_of(meters: Counters, seen: Telemetry | None = None) -> str:
    gate = Gate(GateSettings(classes=(CHAT,)), Beliefs(0.001, 0.01))
    gate.handle(ReplicaAdded('odd "name"\n', 4), 0.0)
    return meters.page(gate.view, seen or Telemetry(), {"events": 3})


def value_of(page: str, sample: str) -> float:
    [line] = [line for line in page.splitlines() if line.startswith(sample + " ")]
    return float(line.rpartition(" ")[2])


def checked(page: str) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("needs promtool, of Debian's package prometheus: `make system`")
    done = subprocess.run([promtool, "check", "metrics"], input=page, text=True, capture_output=True)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_prometheus_reads_every_series_and_has_nothing_to_say_about_them() -> None:
    seen = Telemetry()
    seen.steered(Degrade(2))
    seen.steered(StageRelease("v2", 0.05))
    meters = Counters((CHAT,))
    meters.saw(answered("a"))
    page = page_of(meters, seen)
    assert value_of(page, "twofold_degrade_level") == 2
    assert value_of(page, 'twofold_release_share{version="v2"}') == 0.05
    assert value_of(page, 'twofold_log_lines_lost_total{log="events"}') == 3
    assert value_of(page, 'twofold_replica_requests_in_flight{replica="odd \\"name\\"\\n"}') == 0
    checked(page)


def test_a_page_without_any_request_is_read_too() -> None:
    checked(page_of(Counters(())))


def test_goals_are_buckets_so_that_who_kept_one_is_counted() -> None:
    meters = Counters((CHAT,))
    for ttft_s in (0.1, 0.3, 0.31):
        meters.saw(answered(ttft_s=ttft_s))
    page = page_of(meters)
    assert value_of(page, 'twofold_ttft_seconds_bucket{class="chat",le="0.3"}') == 2
    assert value_of(page, 'twofold_tpot_seconds_bucket{class="chat",le="0.042"}') == 3
    assert value_of(page, 'twofold_e2e_seconds_count{class="chat"}') == 3
    assert value_of(page, 'twofold_output_tokens_total{class="chat"}') == 33


def test_strangers_names_make_no_series_without_end() -> None:
    meters = Counters((CHAT,))
    for number in range(3 * TENANTS_MAX):
        meters.saw(answered(f"tenant-{number}"))
    page = page_of(meters)
    tenants = [line for line in page.splitlines() if line.startswith("twofold_tenant_requests_total{")]
    assert len(tenants) == TENANTS_MAX + 1
    assert value_of(page, f'twofold_tenant_requests_total{{tenant="{OTHERS}"}}') == 2 * TENANTS_MAX
    unknown = answered()
    unknown.class_name = "made up"
    meters.saw(unknown)
    assert "made up" not in page_of(meters)


def test_zones_of_clients_are_counted_where_they_are_said_and_answered() -> None:
    meters = Counters((CHAT,))
    meters.saw(answered())
    assert "client_zone" not in page_of(meters)  # nobody says where he is
    for number in range(3 * ZONES_MAX):
        one = answered(ttft_s=0.2)
        one.zone = f"region-{number}"
        meters.saw(one)
    stranger = answered()
    stranger.zone, stranger.outcome = "never answered", "refused"
    meters.saw(stranger)
    page = page_of(meters)
    counted = [line for line in page.splitlines() if line.startswith("twofold_client_zone_requests_total{")]
    assert len(counted) == ZONES_MAX + 2 and "never answered" not in page
    finished = f'twofold_client_zone_requests_total{{zone="{OTHERS}",outcome="finished"}}'
    assert value_of(page, finished) == 2 * ZONES_MAX
    assert value_of(page, 'twofold_client_zone_ttft_seconds_bucket{zone="region-7",le="0.2"}') == 1
    checked(page)


@given(st.lists(st.sampled_from([0.0, 0.1, 0.5, 0.50001, 2.0, 1e9])))
def test_buckets_count_upwards_to_all(values: list[float]) -> None:
    histogram = Histogram((0.1, 0.5, 1.0))
    for value in values:
        histogram.observe(value)
    samples = [(labels.get("le"), value) for _, labels, value in histogram.samples({})]
    assert samples[:4] == [
        (le, sum(value <= float(le.replace("+Inf", "inf")) for value in values))
        for le in ("0.1", "0.5", "1.0", "+Inf")
    ]
    assert samples[4:] == [(None, pytest.approx(sum(values))), (None, len(values))]


def test_engines_series_keep_their_names_and_stand_together() -> None:
    page = '# HELP vllm:x_seconds Said\n# TYPE vllm:x_seconds histogram\nvllm:x_seconds_bucket{le="+Inf"} 1\n'
    page += 'vllm:x_seconds_sum 0.5\nvllm:x_seconds_count 1\nnonsense here\nreplicated{replica="a"} 1\n'
    both = with_label({"r0": page, "r1": page}, "replica")
    assert both.count("# TYPE vllm:x_seconds histogram") == 1 and "nonsense" not in both
    assert 'vllm:x_seconds_bucket{replica="r1",le="+Inf"} 1' in both and "replicated" not in both
    checked(both.replace("vllm:", "vllm_"))  # its linter finds colons odd, its reader does not


def test_every_request_ends_once_whatever_becomes_of_it() -> None:
    seen: list[Outcome] = []
    told = Telemetry([seen.append])

    def arrive(effect: Send | Hold | Refuse, at_s: float) -> None:
        told.arrives((f"name-{effect.request_id}", "/p"), RequestArrived(5, 9, "t"), at_s)
        told.decided(effect, at_s)

    arrive(Send(1, "a", 1), 1.0)
    arrive(Hold(2), 1.0)
    arrive(Refuse(3, RefusalReason.RATE, 429, 2.0), 1.0)
    arrive(Send(4, "a", 1), 1.0)
    arrive(Send(5, "a", 1), 1.0)
    told.started(1, 1.5)
    told.decided(Send(4, "b", 2), 1.6)
    told.decided(Refuse(2, RefusalReason.EXPIRED, 503, 1.0), 1.7)
    told.ended(1, "a", 200, (6, 3), 2.5)
    told.ended(4, "b", 400, (None, 0), 2.0)
    told.decided(GiveUp(5, Cause.BROKEN), 2.0)
    told.left(5, 3.0)  # it had ended
    told.ended(99, "a", 200, (1, 1), 3.0)  # nobody knows it
    found = {each.request_id: (each.outcome, each.reason, each.status, each.attempts) for each in seen}
    assert found == {
        "name-3": (REFUSED, "rate", 429, 0),
        "name-2": (REFUSED, "expired", 503, 0),
        "name-1": (FINISHED, "", 200, 1),
        "name-4": (REFUSED, "engine", 400, 2),
        "name-5": ("failed", "broken", 502, 1),
    }
    first = next(each for each in seen if each.request_id == "name-1")
    assert (first.path, first.input_tokens) == ("/p", 6)
    assert (first.ttft_s, first.e2e_s, first.tpot_s) == (0.5, 1.5, 0.5)


def test_requests_that_never_end_are_forgotten_at_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("twofold.live.gateway.telemetry.OPEN_MAX", 3)
    seen: list[Outcome] = []
    told = Telemetry([seen.append])
    for number in range(5):
        told.arrives((f"{number}", "/p"), RequestArrived(5, 9), 0.0)
        told.decided(Send(number, "a", 1), 0.0)
    for number in range(5):
        told.left(number, 1.0)
    assert [each.request_id for each in seen] == ["2", "3", "4"] and told.forgotten_count == 2


def test_what_is_turned_away_is_of_no_class_and_names_that_were_never_answered_are_not_kept() -> None:
    meters = Counters((CHAT,))
    seen = Telemetry([meters.saw])
    for number in range(2 * TENANTS_MAX):
        seen.turned_away(("id", "/v1/completions"), f"invented-{number}", 400, "")
    meters.saw(answered("known"))
    page = page_of(meters, seen)
    refused = 'twofold_requests_total{class="(none)",outcome="refused",code="400",reason="bad-request"}'
    assert value_of(page, refused) == 2 * TENANTS_MAX
    assert value_of(page, f'twofold_tenant_requests_total{{tenant="{OTHERS}"}}') == 2 * TENANTS_MAX
    assert value_of(page, 'twofold_tenant_requests_total{tenant="known"}') == 1
    assert 'class="chat",outcome="refused"' not in page and "invented" not in page
