"""`simulate` and `plan --rehearse` from the command line: exit codes, data, and what is refused."""

import json
import re
from pathlib import Path

import pytest

SPEC = """\
name: helpdesk
model: llama-3.1-8b
serving:
  quantisation: [fp8]
  on: 1xH100-SXM
  classes:
    chat:
      traffic: {rate: 4 /s, peak: 2x, input: 300 tok, output: 10 tok}
      slo: {ttft_p95: 1 s, tpot_p95: 50 ms}
"""
SHORT = "name: short\nhorizon: 30 s\nwarm_up: 5 s\nbeliefs: {error: 0 %}\n"


@pytest.fixture
def spec(tmp_path: Path) -> None:
    """A spec that is planned in a moment and a short scenario, in the working directory."""
    (tmp_path / "spec.yaml").write_text(SPEC)
    (tmp_path / "short.yaml").write_text(SHORT)


@pytest.mark.usefixtures("spec")
def test_goals_that_are_kept_exit_0_and_those_that_are_missed_exit_3(run) -> None:
    kept = run("twofold simulate spec.yaml --scenario short.yaml")
    assert (kept.code, kept.err) == (0, "")
    assert "all met; not resolved: " in " ".join(kept.out.split())  # half a minute has too few requests
    Path("storm.yaml").write_text(SHORT + "faults: {kind: thermal-throttle, at: 0 s, slowdown: 500x}\n")
    missed = run("twofold simulate spec.yaml --scenario storm.yaml")
    assert missed.code == 3
    assert "BROKE FIRST" in missed.out
    assert all(len(line) <= 100 for line in (kept.out + missed.out).splitlines())


@pytest.mark.usefixtures("spec")
def test_the_data_goes_to_stdout_and_to_a_file_that_is_not_replaced(run) -> None:
    line = "twofold simulate spec.yaml --scenario short.yaml --seed 3 --json --out made.json"
    done = run(line)
    data = json.loads(Path("made.json").read_text())
    assert (data["schema"], data["seed"], len(data["plan_digest"])) == ("twofold/simulation/1", 3, 64)
    assert done.out.startswith('{\n "schema": "twofold/simulation/1"')
    masked = {"plan_digest": "<digest>", "gate_digests": {"serve/chat": "<digest>"}}
    assert [len(each) for each in data["gate_digests"].values()] == [64]
    assert json.loads(done.out) == data | masked
    again = run(line)
    assert again.code == 2
    assert "made.json` exists" in again.err


@pytest.mark.usefixtures("spec")
@pytest.mark.parametrize(
    ("line", "code", "says"),
    [
        ("twofold simulate missing.yaml", "E-file", "does not exist"),
        ("twofold simulate spec.yaml --scenario zone-los", "E-name", "did you mean `zone-loss`"),
        ("twofold simulate spec.yaml --scenario nowhere.yaml", "E-file", "does not exist"),
        ("twofold simulate spec.yaml --compare zone-loss", "E-usage", "names no two scenarios"),
        ("twofold simulate spec.yaml --only voice", "E-name", "classes: chat"),
        ("twofold simulate spec.yaml --trace none.csv", "E-file", "does not exist"),
        ("twofold simulate spec.yaml --trace a.csv --trace b.csv", "E-usage", "two traces"),
        ("twofold simulate spec.yaml --seed -1", "E-value", "whole number from 0"),
        ("twofold simulate spec.yaml --seed many", "E-usage", "not a valid integer"),
        ("twofold simulate spec.yaml --requests no/where.csv", "E-file", "does not exist"),
        ("twofold simulate spec.yaml --scenario training-week", "E-empty", "names no nodes"),
        ("twofold simulate", "E-usage", "missing argument"),
    ],
)
def test_what_cannot_be_rehearsed_is_refused_with_a_code(line: str, code: str, says: str, run) -> None:
    done = run(line)
    assert (done.code, done.out) == (2, "")
    assert f"error[{code}]" in done.err
    assert says in done.err
    assert "Traceback" not in done.err


@pytest.mark.usefixtures("spec")
def test_a_broken_trace_points_at_its_row(run) -> None:
    Path("t.csv").write_text("arrival_s,input_tokens,output_tokens\n0,10,10\n1,many,10\n")
    done = run("twofold simulate spec.yaml --trace chat=t.csv")
    assert done.code == 2
    assert re.match(r"\S*t\.csv:3:1: error\[E-trace\]: `many` is not a count of tokens", done.err)


@pytest.mark.usefixtures("spec")
def test_a_scenario_that_contradicts_itself_points_at_its_key(run) -> None:
    Path("odd.yaml").write_text("horizon: 5 min\nfleet: {replicas: 0}\nclients: {attempts: 3}\n")
    done = run("twofold simulate spec.yaml --scenario odd.yaml")
    assert done.code == 2
    assert re.findall(r"odd\.yaml:(\d)", done.err) == ["2", "3"]
    assert done.err.endswith("2 errors\n")


def test_the_help_lists_the_scenarios(run) -> None:
    text = " ".join(run("twofold simulate --help").out.split()).replace("- ", "-")
    for name in ("black-friday", "zone-loss", "bad-canary", "slow-replica", "cold-start", "retry-storm"):
        assert name in text
    for name in ("noisy-tenant", "training-week", "preemption-storm", "train-by-night"):
        assert name in text


@pytest.mark.usefixtures("spec")
def test_a_rehearsed_plan_shows_the_twin_beside_the_plan(run) -> None:
    done = run("twofold plan spec.yaml --rehearse --out rehearsed.json")
    assert (done.code, done.err) == (0, "")
    assert "rehearsed" in done.out
    assert "not rehearsed" not in done.out
    data = json.loads(Path("rehearsed.json").read_text())
    assert data["rehearsed"] is True
    assert data["serving"][0]["rehearsals"][0]["chosen"] is True
