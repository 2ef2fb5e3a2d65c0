"""Words that were easy to get wrong: a question left out, a misspelt column, a help text that was wrong."""

import json
from pathlib import Path

import pytest

HEADER = "model,gpu,gpus_total,framework,tp,isl_mean,osl_mean,concurrency"
ROW = "llama-3.1-8b,h100,1,vllm,1,1000,200,16"


@pytest.mark.parametrize(
    ("words", "what", "hint"),
    [
        ("estimate --json", "a question is missing behind `estimate`", "`twofold estimate train …`"),
        ("measure --json", "a question is missing behind `measure`", "`twofold measure device …`"),
        ("estimate roofine llama-3.1-8b", "`roofine` is no question of `estimate`", "estimate roofline …`"),
        ("estimate --json train x", "`--json` stands before the question", "train … --json`"),
    ],
)
def test_a_question_left_out_is_named(run, words: str, what: str, hint: str) -> None:
    done = run(f"twofold {words}")
    assert done.code == 2
    assert f"error[E-usage]: {what}" in done.err and hint in done.err


def test_out_keeps_the_data_beside_what_is_printed(run) -> None:
    assert "Also write the answer to this file, as JSON" in " ".join(run("twofold plan --help").out.split())


@pytest.mark.parametrize(("name", "wanted"), [("isl_mean", "ISL mean"), ("concurrency", "concurency")])
def test_predict_refuses_a_misspelt_column_at_its_place(run, name: str, wanted: str) -> None:
    Path("rows.csv").write_text(f"{HEADER.replace(name, wanted)}\n{ROW}\n")
    done = run("twofold predict inference --in rows.csv --out out.csv")
    column = HEADER.index(name) + 1
    assert done.code == 2 and not Path("out.csv").exists()
    assert f"rows.csv:1:{column}: error[E-key]: nothing reads a column `{wanted}`" in done.err
    assert f"did you mean `{name}`?" in done.err


def test_predict_names_columns_that_nothing_reads(run) -> None:
    Path("rows.csv").write_text(f"{HEADER},colour,notes\n{ROW},red,x\n")
    done = run("twofold predict inference --in rows.csv --out out.csv --json")
    assert done.code == 0 and json.loads(done.out)["unread"] == ["colour"]
    assert Path("out.csv").read_text().startswith(f"{HEADER},colour,notes,pred_")


def test_a_column_of_adapters_is_read_by_the_lint_too(run) -> None:
    Path("rows.csv").write_text("model,gpu,gpus,seq_len,adapter\nllama-3.1-8b,H100-SXM,8,4096,lora\n")
    assert "nothing reads" not in run("twofold validate --lint rows.csv").out


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"isl_mean": "-1000"}, "isl_mean is -1000; leave the cell blank"),
        ({"osl_mean": "0"}, "osl_mean is 0"),
        ({"tp": "1.5"}, "no whole number"),
        ({"tp": "3"}, "tp·pp·dp is 3, gpus_total 1; one of the sizes is another deployment's"),
        ({"concurrency": "many"}, "which is no number"),
        ({"framework": "vlm"}, "unknown framework `vlm`; did you mean `vllm`?"),
    ],
)
def test_predict_refuses_a_row_that_nothing_can_have_run(run, change: dict[str, str], says: str) -> None:
    good = {"model": "llama-3.1-8b", "gpu": "h100", "gpus_total": "1", "framework": "TensorRT-LLM", "tp": "1"}
    good |= {"isl_mean": "1000", "osl_mean": "200", "concurrency": "16"}
    rows = [",".join({**good, **each}.values()) for each in ({}, change)]
    Path("rows.csv").write_text("\n".join([",".join(good), "", *rows]))
    done = run("twofold predict inference --in rows.csv --out out.csv")
    assert done.code == 0 and "1 refused" in done.out  # the good row is answered
    told = " ".join(done.out.split())
    assert "rows.csv:4: E-" in told and says in told
    Path("rows.csv").write_text("\n".join([",".join(good), rows[1]]))
    assert run("twofold predict inference --in rows.csv --out out.csv --force").code == 2


def test_a_misspelt_training_framework_is_refused_with_the_one_that_was_meant(run) -> None:
    head = "model,gpu,gpus,seq_len,global_batch_seqs,framework"
    Path("rows.csv").write_text(f"{head}\nllama-3.1-8b,h100,8,4096,64,megatorn\n")
    done = run("twofold predict training --in rows.csv --out out.csv")
    assert done.code == 2 and "did you mean `megatron-core`?" in " ".join(done.out.split())
