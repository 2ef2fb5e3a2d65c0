"""The doctor's rules: each warns on a run made for it, keeps quiet on a sound one, and shows its figures."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from twofold.contracts.results.loop import (
    DataRead,
    LoadPoint,
    Quantiles,
    ServingMeasured,
    StepParts,
    TrainingMeasured,
)
from twofold.measure.doctor import (
    busy_machine,
    communication_bound,
    diagnose,
    input_bound,
    kv_pressure,
    tail_grows,
)

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
    findings = diagnose(
        [replace(RUN, off_core_fraction=0.03)], [service(load(1, 1.0, 1.0), load(4, 3.8, 1.05))]
    )
    assert [(finding.rule, finding.verdict) for finding in findings] == [
        ("input-bound", "ok"),
        ("busy-machine", "ok"),
        ("communication-bound", "ok"),
        ("tail-grows", "ok"),
        ("kv-pressure", "ok"),
    ]
    assert all(any(c.isdigit() for c in finding.saw) and not finding.advice for finding in findings)


def test_waiting_for_data_is_input_bound() -> None:
    finding = input_bound(replace(RUN, parts=replace(PARTS, data_s=0.05)))
    assert finding.verdict == "warn" and finding.advice.startswith("input bound: do not buy accelerators")


def test_a_finding_is_a_sentence_with_its_share_said_once() -> None:
    said = input_bound(replace(RUN, data_fraction=0.001)).saw
    assert said == "0.1% of the time of its steps is spent waiting for data"
    said = communication_bound(replace(RUN, parts=replace(PARTS, communication_s=0.08))).saw
    assert said.startswith("44.9% (above 30%) of the time of its steps, 80.0 ms each, passes in collectives")


def test_rare_long_stalls_are_input_bound_too_and_the_slow_half_of_staging_is_named() -> None:
    read = DataRead("d", 4, 8_000_000, 2_000_000, 400, 6_000_000, fetch_s=30.0, tokenise_s=2.0)
    stalled = replace(RUN, data_fraction=0.4, data=read)  # a typical step waits for nothing
    finding = input_bound(stalled)
    assert finding.verdict == "warn" and "40.0%" in finding.saw
    assert "the source gives 0.20 MB/s" in finding.saw and "nearer" in finding.advice
    slow_host = replace(read, fetch_s=1.0, tokenise_s=20.0)
    finding = input_bound(replace(stalled, data=slow_host))
    assert "tokenising gives 0.30 MB/s" in finding.saw and "more processes" in finding.advice


def test_ranks_that_wait_for_cores_say_that_the_machine_is_busy() -> None:
    finding = busy_machine(replace(RUN, off_core_fraction=0.45))
    assert finding.verdict == "warn" and finding.advice.startswith("this machine is busy")
    assert busy_machine(replace(RUN, off_core_fraction=0.1)).verdict == "ok"
    assert busy_machine(RUN).verdict == "ok"  # nobody measured it
    # Reading waits for cores too: that is no want of data.
    finding = input_bound(replace(RUN, off_core_fraction=0.45, data_fraction=0.2))
    assert finding.verdict == "ok" and "the machine is busy" in finding.saw


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
