"""`twofold validate` on the command line: screens, data, exit codes."""

import json
from pathlib import Path

HEADER = "id,model,gpu,gpus_total,framework,precision_weights,tp,isl_mean,osl_mean,concurrency,tpot_mean_ms"
ROW = "monday,llama-3.1-70b,H200,4,vllm,fp8,4,1000,200,16,16.2"


def write(*rows: str) -> None:
    Path("runs.csv").write_text("\n".join([HEADER, *rows]) + "\n")


def test_a_table_of_runs_is_scored_on_one_screen(run) -> None:
    write(ROW)
    done = run("twofold validate --data runs.csv --by gpu,arch")
    assert (done.code, done.err) == (0, "")
    assert all(len(line) <= 100 for line in done.out.splitlines())
    assert "H200-SXM5-141GB · dense" in done.out


def test_everything_is_in_the_data(run) -> None:
    write(ROW)
    data = json.loads(run("twofold validate --data runs.csv --json").out)
    assert data["schema"] == "twofold/validation/1"
    (group,) = data["groups"]
    assert (group["figure"], group["basis"]) == ("tpot", "stated")
    assert {"mean_error", "spearman", "coverage_80", "coverage_95", "width_80"} <= group["scores"][
        "left_out"
    ].keys()
    assert data["gate"] is None and data["refusals"][0]["rows"] == 1


def test_the_gate_holds_on_the_packaged_sample_and_other_rows_exit_3(run) -> None:
    done = run("twofold validate training --gate")
    assert (done.code, "GATE holds" in done.out) == (0, True), done.out
    Path("others").mkdir()
    Path("others/inference.csv").write_text(f"{HEADER}\n{ROW}\n")
    failed = run("twofold validate --data others --gate")
    assert (failed.code, "GATE fails" in failed.out) == (3, True)


def test_wrong_questions_exit_2(run) -> None:
    write(ROW)
    for line, said in (
        ("twofold validate cooking", "no half"),
        ("twofold validate --by colour", "grouped by"),
        ("twofold validate --data missing.csv", "missing.csv"),
        ("twofold validate training --data runs.csv", "no table of training runs"),
        ("twofold validate --data runs.csv --gate", "no committed figures"),
        ("twofold validate --lint runs.csv --gate", "neither"),
    ):
        done = run(line)
        assert (done.code, said in done.err) == (2, True), done.transcript


def test_a_lint_is_a_screen_or_data(run) -> None:
    write(ROW, ROW.replace("16.2", "0.0162"))
    done = run("twofold validate --lint runs.csv")
    assert done.code == 0 and "suspect: line 3" in done.out
    data = json.loads(run("twofold validate --lint runs.csv --json").out)
    assert data["schema"] == "twofold/lint/1"
    assert {"line", "rule", "severity", "message", "hint"} <= data["findings"][0].keys()
