"""What `init --from` writes: it passes check, holds what the source says, and marks what it does not say."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.gateway_log import gateways_log
from twofold.contracts.names import Names
from twofold.contracts.spec.inferring import infer_spec
from twofold.contracts.spec.reader import parse_spec
from twofold.contracts.spec.spec import Spec
from twofold.contracts.spec.starter import StarterKind, starter_spec
from twofold.core.errors import TwofoldError

COMMAND = (
    "vllm serve meta-llama/Llama-3.1-70B-Instruct --tensor-parallel-size 4 --max-model-len 8192 "
    "--quantization fp8 --kv-cache-dtype fp8 --max-num-seqs 64"
)
SACCT = """JobID|JobName|Start|Elapsed|NNodes|AllocTRES
1|pre train|2026-01-01T00:00:00|1-02:03:04|8|cpu=4,gres/gpu=64,gres/gpu:h100_sxm=64,node=8
1.batch|batch|2026-01-01T00:00:00|1-02:03:04|1|gres/gpu=8
2|sft|2026-01-01T00:00:00|02:00:00|1|cpu=4,gres/gpu=8
3|sft|2026-01-08T00:00:00|02:00:00|1|cpu=4,gres/gpu=8
4|sft|2026-01-15T00:00:00|02:00:00|1|cpu=4,gres/gpu=8
5|shell|2026-01-15T00:00:00|02:00:00|1|cpu=4
"""


def inferred(source: str, names: Names) -> tuple[str, Spec]:
    text = infer_spec(source, names)
    return text, parse_spec(text, "twofold.yaml", names)


def failure_of(source: str, names: Names) -> TwofoldError:
    with pytest.raises(TwofoldError) as caught:
        infer_spec(source, names)
    assert caught.value.exit_code == 2
    return caught.value


@pytest.mark.parametrize(("kind", "halves"), [("chat", (0, 1)), ("train", (1, 0)), ("both", (1, 1))])
def test_a_starter_passes_check(kind: StarterKind, halves: tuple[int, int], names: Names) -> None:
    spec = parse_spec(starter_spec(kind), "twofold.yaml", names)
    assert (len(spec.training), len(spec.services)) == halves


@pytest.mark.parametrize("form", ["{}", "$ CUDA_VISIBLE_DEVICES=0,1,2,3 {}", "python -m {}"])
def test_a_serve_command_gives_model_formats_and_gpus(form: str, names: Names) -> None:
    command = COMMAND
    if "python" in form:
        command = COMMAND.replace("vllm serve ", "vllm.entrypoints.openai.api_server --model ")
    text, spec = inferred(form.format(command), names)
    service = spec.services[0]
    assert service.model.name == "llama-3.1-70b"
    assert (service.quantisation, service.kv_quantisation) == (("fp8",), ("fp8",))
    assert "4xH100-SXM" in text  # as a comment: the command does not name the accelerator
    assert service.on is None
    lengths = service.classes["chat"].traffic
    assert lengths.input.p95_tokens + lengths.output.p95_tokens <= 8192
    for line in text.splitlines():
        if any(key in line for key in ("rate:", "slo:", "input:", "availability:")):
            assert "# assumed" in line


@pytest.mark.parametrize(
    ("words", "weights", "cache"),
    [
        ("llama-3.1-8b", (), ()),
        ("meta-llama/Llama-3.1-70B-Instruct-FP8 --dtype bfloat16", ("fp8",), ()),
        ("meta-llama/Llama-3.1-70B-Instruct-AWQ --quantization awq_marlin", ("int4",), ()),
        ("llama-3.1-8b --dtype half --kv-cache-dtype fp8_e4m3", ("fp16",), ("fp8",)),
    ],
)
def test_formats_that_a_command_leaves_out_are_the_checkpoints(
    words: str, weights: tuple[str, ...], cache: tuple[str, ...], names: Names
) -> None:
    service = inferred(f"vllm serve {words}", names)[1].services[0]
    assert (service.quantisation, service.kv_quantisation) == (weights, cache)


def test_more_sequences_in_flight_are_more_requests(names: Names) -> None:
    def rate(limit: int) -> float:
        spec = inferred(f"vllm serve llama-3.1-8b --max-num-seqs={limit}", names)[1]
        return spec.services[0].classes["chat"].traffic.rate_per_s or 0.0

    assert rate(512) == pytest.approx(2 * rate(256), rel=0.01)


def test_a_command_may_stand_in_a_file_over_several_lines(tmp_path: Path, names: Names) -> None:
    script = tmp_path / "serve.sh"
    script.write_text("#!/bin/sh\n" + COMMAND.replace(" --", " \\\n  --") + "\n", "utf-8")
    assert inferred(str(script), names)[1] == inferred(COMMAND, names)[1]


def test_a_model_that_the_catalogue_lacks_is_marked(names: Names) -> None:
    text, spec = inferred("vllm serve acme/secret-9b", names)
    assert spec.services[0].model.name == "llama-3.1-8b"
    assert "# assumed: the catalogue has no 'acme/secret-9b'" in text


@given(word=st.text(max_size=40))
def test_no_word_of_a_command_escapes_into_the_spec(word: str) -> None:
    names = Names(models=frozenset({"llama-3.1-8b"}))
    for source in (
        f"vllm serve {word}",
        f"vllm serve m --dtype {word}",
        f"vllm serve m --served-model-name '{word}'",
    ):
        try:
            text = infer_spec(source, names)
        except TwofoldError as error:
            assert error.exit_code == 2
        else:
            assert len(parse_spec(text, "twofold.yaml", names).services) == 1


def test_a_request_log_gives_rate_and_lengths(tmp_path: Path, names: Names) -> None:
    log = tmp_path / "requests.jsonl"
    model = "meta-llama/Llama-3.1-70B-Instruct"
    requests = [
        {"timestamp": 0.5 * n, "model": model, "usage": {"prompt_tokens": 100 + n, "completion_tokens": 10}}
        for n in range(1200)
    ]
    log.write_text("\n".join(map(json.dumps, requests)), "utf-8")
    text, spec = inferred(str(log), names)
    traffic = spec.services[0].classes["chat"].traffic
    assert spec.services[0].model.name == "llama-3.1-70b"
    assert traffic.rate_per_s == pytest.approx(2, rel=0.01)
    assert traffic.peak_ratio == pytest.approx(1, rel=0.01)
    assert traffic.input.mean_tokens == pytest.approx(699.5, abs=1)
    assert traffic.input.p95_tokens == pytest.approx(1239, rel=0.01)
    assert traffic.output.mean_tokens == 10
    assert "slo: {ttft_p95: 500 ms, tpot_p95: 40 ms}            # assumed" in text


def test_the_gateways_own_log_gives_them_and_says_what_is_left_out(tmp_path: Path, names: Names) -> None:
    text, spec = inferred(str(gateways_log(tmp_path / "requests.jsonl")), names)
    traffic = spec.services[0].classes["chat"].traffic
    assert (traffic.rate_per_s, traffic.input.mean_tokens) == (2.0, 150.0)
    assert "# requests.jsonl: 4 of 6 requests left out: 1 turned away" in text


def test_accounting_gives_runs_machines_and_repeats(tmp_path: Path, names: Names) -> None:
    for separator, quote in (("|", ""), (",", '"')):
        table = tmp_path / "sacct.csv"
        lines = [[f"{quote}{cell}{quote}" for cell in line.split("|")] for line in SACCT.splitlines()]
        table.write_text("\n".join(separator.join(line) for line in lines), "utf-8")
        text, spec = inferred(str(table), names)
        first, second = spec.training
        assert (first.name, second.name, second.kind) == ("pre-train", "sft", "finetune")
        assert first.on is not None
        assert (first.on.count, first.on.accelerators_per_node, first.on.accelerator) == (8, 8, "H100-SXM")
        assert first.deadline_s == pytest.approx(26.05 * 3600, rel=0.01)
        assert (second.repeats_every_s, second.on) == (7 * 86400, None)
        assert "tokens: 49.8 Gtok                                     # assumed: 1,667.3 GPU-h" in text


@pytest.mark.parametrize(
    ("name", "content", "code", "line"),
    [
        ("requests.jsonl", '{"ts": 1, "prompt_tokens": 1, "output_tokens": 1}\n{"ts": 2}\n', "E-trace", 2),
        ("requests.jsonl", '{"ts": 1, "prompt_tokens": 1, "output_tokens": 1}\nnot json\n', "E-trace", 2),
        ("requests.jsonl", '{"ts": "x", "prompt_tokens": 1, "output_tokens": 1}\n', "E-trace", 1),
        ("requests.jsonl", "", "E-trace", 1),
        ("sacct.csv", "JobID|Elapsed\n1|2\n", "E-infer", 1),
        ("sacct.csv", "JobID|Elapsed|AllocTRES\n1|later|gres/gpu=8\n", "E-infer", 2),
        ("sacct.csv", "JobID|Elapsed|AllocTRES\n1|01:00:00|cpu=8\n", "E-infer", 1),
        ("sacct.csv", "JobID|Elapsed|AllocTRES\n1|01:00:00\n", "E-infer", 2),
    ],
)
def test_bad_lines_are_named(
    tmp_path: Path, names: Names, name: str, content: str, code: str, line: int
) -> None:
    path = tmp_path / name
    path.write_text(content, "utf-8")
    error = failure_of(str(path), names)
    assert error.code == code
    assert error.place is not None
    assert error.place.line == line


@pytest.mark.parametrize(
    ("source", "code", "says"),
    [
        ("absent.jsonl", "E-file", "does not exist"),
        ("vllm serve", "E-infer", "names no model"),
        ("vllm serve m --tensor-parallel-size four", "E-infer", "`--tensor-parallel-size four`"),
        ("vllm serve 'm", "E-infer", "ends in the middle"),
    ],
)
def test_sources_that_say_nothing_are_refused(source: str, code: str, says: str, names: Names) -> None:
    error = failure_of(source, names)
    assert (error.code, says in error.message) == (code, True)


def test_a_file_of_another_kind_is_refused(tmp_path: Path, names: Names) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("buy milk\n", "utf-8")
    assert failure_of(str(path), names).code == "E-infer"
    path.write_bytes(b"\xff\xfe\x00")
    assert failure_of(str(path), names).code in ("E-trace", "E-encoding")


def test_a_short_job_is_told_in_minutes_and_millions_of_tokens(tmp_path: Path, names: Names) -> None:
    table = tmp_path / "sacct.csv"
    table.write_text("JobID|JobName|Elapsed|AllocTRES|NNodes\n2|eval|00:10:00|gres/gpu=8,node=1|1\n", "utf-8")
    text, spec = inferred(str(table), names)
    assert spec.training[0].deadline_s == 600
    assert "deadline: 10 min" in text and " Mtok" in text
