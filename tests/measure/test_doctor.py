"""The doctor's rules: each warns on a run made for it, keeps quiet on a sound one, and shows its figures."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from twofold.contracts.results.loop import LoadPoint, Quantiles, ServingMeasured, StepParts, TrainingMeasured
from twofold.measure.doctor import communication_bound, diagnose, input_bound, kv_pressure, tail_grows

PARTS = StepParts(0.001, 0.03, 0.06, 0.01, 0.004, 0.001, 0.002)
RUN = TrainingMeasured(
    2, 5_800_000, 100, 1024, 0.1, 0.108, 0.12, PARTS, 8.3, 5.1, 10**9, 7 * 10**7, 8, 0.3, None, 60.0
)


def load(clients: int, requests_per_s: float, p95_s: float, held: float = 500.0) -> LoadPoint:
    flat = Quantiles(p95_s, p95_s, p95_s, p95_s)
    return LoadPoint(
        f"closed-{clients}",
        clients,
        None,
        128.0,
        64.0,
        50,
        50,
        0,
        0,
        requests_per_s,
        requests_per_s * 64.0,
        flat,
        flat,
        flat,
        held,
    )


def service(*loads: LoadPoint) -> ServingMeasured:
    return ServingMeasured("transformers 5", 2, 16_384.0, 12.0, "sha256-0", loads)


def test_a_sound_run_passes_every_rule_with_its_figures() -> None:
    findings = diagnose([RUN], [service(load(1, 1.0, 1.0), load(4, 3.8, 1.05))])
    assert [(finding.rule, finding.verdict) for finding in findings] == [
        ("input-bound", "ok"),
        ("communication-bound", "ok"),
        ("tail-grows", "ok"),
        ("kv-pressure", "ok"),
    ]
    assert all(any(c.isdigit() for c in finding.saw) and not finding.advice for finding in findings)


def test_waiting_for_data_is_input_bound() -> None:
    finding = input_bound(replace(RUN, parts=replace(PARTS, data_s=0.05)))
    assert (finding.verdict, "50.0 ms" in finding.saw, bool(finding.advice)) == ("warn", True, True)


def test_long_collectives_are_communication_bound() -> None:
    finding = communication_bound(replace(RUN, parts=replace(PARTS, communication_s=0.08)))
    assert finding.verdict == "warn"
    assert "2 ranks" in finding.saw


def test_the_tail_is_warned_of_where_p95_first_grows_faster_than_throughput() -> None:
    finding = tail_grows(service(load(16, 4.2, 4.0), load(1, 1.0, 1.0), load(4, 3.9, 1.1)))
    assert finding.verdict == "warn"
    assert "from 4 to 16 clients" in finding.saw
    assert "admit 4" in finding.advice
    assert tail_grows(service(load(1, 1.0, 1.0))).verdict == "ok"


def test_a_nearly_full_cache_is_pressed() -> None:
    assert kv_pressure(service(load(1, 1.0, 1.0, held=14_000.0))).verdict == "warn"
    assert kv_pressure(service(load(1, 1.0, 1.0, held=13_000.0))).verdict == "ok"


@given(share=st.floats(0.0, 0.99), total_s=st.floats(1e-3, 1e3))
def test_a_share_is_judged_whatever_the_length_of_a_step(share: float, total_s: float) -> None:
    parts = StepParts(share * total_s, (1.0 - share) * total_s, 0.0, 0.0, 0.0, 0.0, 0.0)
    verdict = input_bound(replace(RUN, parts=parts)).verdict
    if abs(share - 0.05) > 1e-9:
        assert verdict == ("warn" if share > 0.05 else "ok")
