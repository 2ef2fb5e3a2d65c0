"""The screen of a proof: what was planned, rehearsed and seen, and what lies outside and why."""

import json
from dataclasses import replace

from twofold.app.proof_stages import ProofShown
from twofold.app.saved_answers import saved_answer
from twofold.contracts.results.proof import Learned, MachineUse, Proof, ProofRun
from twofold.core.estimate import Estimate
from twofold.measure.proof_goals import Figure, Goal, findings_of, judged

QUIET, BURNT = MachineUse(0.2, 1.4, 0.05), MachineUse(0.3, 2.6, 1.02)


def seconds(value: float) -> Estimate:
    return Estimate(value, 0.8 * value, 1.3 * value, "s")


def count(value: float) -> Estimate:
    return Estimate(value, value - 1, value + 2, "")


ROWS = tuple(
    judged(figure, 12.0)
    for figure in (
        Figure("steady", "TTFT p50", "s", Goal.MIDDLE, seconds(0.036), seconds(0.033), (0.034, 0.035)),
        Figure("steady", "E2E p95", "s", Goal.TAIL, None, seconds(0.71), (1.1, 1.2)),
        Figure("steady", "TPOT p50", "s", Goal.NONE, seconds(0.005), seconds(0.0051), (0.0052, 0.0051)),
        Figure("killed", "retried", "", Goal.COUNT, None, count(7), (6, 8)),
        Figure("killed", "routing recovers", "s", Goal.ROUTING, None, seconds(0.1), (0.2, 0.1)),
        Figure("killed", "capacity back", "s", Goal.CAPACITY, None, seconds(13.0), (12.9, 18.2)),
        Figure("release", "rolled back after", "s", Goal.TAIL, None, seconds(41.0), (38.0, None)),
    )
)
USES = [("steady", QUIET), ("killed", BURNT), ("steady", QUIET), ("killed", QUIET), ("release", QUIET)]
PROOF = Proof(
    name="laptop",
    machine="a processor, 2 cores, 8 GiB",
    seed=7,
    spec_digest="aa" * 32,
    plan_digest="bb" * 32,
    device_digest="cc" * 32,
    twin_gate_digest="9f02" * 16,
    live_gate_digest="9f02" * 16,
    frozen_sha256="41c9" * 16,
    frozen_at="2026-11-27T02:00:00.000+00:00",
    rate_per_s=4.2,
    knee_per_s=10.5,
    replica_count=2,
    calibration=QUIET,
    differs=("all replicas share this machine",),
    rows=ROWS,
    runs=tuple(ProofRun(scenario, 1, 408, 405, 2, 1, use) for scenario, use in USES),
    findings=findings_of(ROWS, USES, QUIET),
    learned=(Learned("TTFT p50", 0.96), Learned("TPOT p50", 1.03)),
    notes=("calibrated: a cold start beside others takes 12.0 s",),
)
SCREEN = """\
laptop · rehearsed, then real                                            a processor, 2 cores, 8 GiB

STEADY: 405 of 408 and 405 of 408 requests finished
            planned             rehearsed           live 1  live 2  apart
  TTFT p50  36 ms [29–47] f     33 ms [26–43] f      34 ms   35 ms  2.9 %  ✓
  E2E p95   –                   710 ms [568–923] f   1.1 s   1.2 s  8.7 %  ✗
  TPOT p50  5.0 ms [4.0–6.5] f  5.1 ms [4.1–6.6] f  5.2 ms  5.1 ms  1.9 %

A REPLICA KILLED: 405 of 408 and 405 of 408 requests finished
                    planned  rehearsed          live 1  live 2  apart
  retried           –        7 [6–9]                 6       8   29 %  ✓
  routing recovers  –        100 ms [80–130] f  200 ms  100 ms   67 %  ✓
  capacity back     –        13 s [10–17] f       13 s    18 s   34 %  ✗

A BAD RELEASE: 405 of 408 requests finished
                     planned  rehearsed       live 1  live 2  apart
  rolled back after  –        41 s [33–53] f    38 s       –         ✗

VERDICT      ✗ 3 of 6 figures came true
OUTSIDE      ✗ steady, E2E p95: the twin says -38%
             the machine was ours alone: the twin is wrong here
OUTSIDE      ✗ killed, capacity back: 18.2 s; a cold start and 5 s are 17.0 s
             other programs kept 1.0 cores busy during a run, 0.1 while it was calibrated
OUTSIDE      ✗ release, rolled back after: not measured in every live run
             it did not happen as it was to
FROZEN       sha256 41c941c941c941c941c941c941c941c941c941c941c941c941c941c941c941c9
             at 2026-11-27T02:00:00.000+00:00, before the runs · seed 7
GATE         9f029f029f029f02 in twin and live
MACHINE      load average 0.2 before and 1.4 after the runs
             others kept 0.1 cores busy while it was calibrated, at most 1.0 in a run · 2 replicas
             knee 10/s, steady 4.2/s
DIFFERS      all replicas share this machine
LEARNED      TTFT p50 ×0.96 · TPOT p50 ×1.03
NOTE         calibrated: a cold start beside others takes 12.0 s
"""


def test_the_screen_says_what_came_true_and_what_did_not_and_why() -> None:
    assert "\n".join(ProofShown(PROOF).lines) + "\n" == SCREEN
    assert max(map(len, ProofShown(PROOF).lines)) <= 100


def test_a_missed_goal_is_exit_3_and_none_is_0() -> None:
    assert ProofShown(PROOF).exit_code == 3
    kept = tuple(row for row in ROWS if row.inside is not False)
    assert ProofShown(replace(PROOF, rows=kept, findings=())).exit_code == 0
    unset = tuple(row for row in ROWS if row.inside is None)
    assert ProofShown(replace(PROOF, rows=unset, findings=())).exit_code == 3  # nothing came true


def test_two_gates_are_said_to_be_two() -> None:
    kept = replace(PROOF, rows=tuple(row for row in ROWS if row.inside is not False), findings=())
    lines = ProofShown(two := replace(kept, live_gate_digest="00" * 32)).lines
    assert two.is_inside is False and ProofShown(two).exit_code == 3
    assert "VERDICT      ✗ 3 of 3 figures came true" in lines
    assert any(line.startswith("GATE         ✗ 9f029f02") and "0000 live" in line for line in lines)


def test_its_json_is_read_back_as_it_was() -> None:
    assert saved_answer(json.loads(ProofShown(PROOF).json)) == PROOF
