"""`twofold.estimate` from Python: words in, typed data and lines out."""

import pytest

import twofold
from twofold.answer.serve_answer import ServingEstimate
from twofold.answer.training_estimate import TrainingEstimate
from twofold.app.estimating import Machines
from twofold.core.errors import InfeasibleError, InputError
from twofold.report.answers import ShownData


def test_a_question_reads_as_the_command_does() -> None:
    answer = twofold.estimate.train("llama-3.1-8b", "1x8xH100-SXM", batch="64 seq", sequence="4096 tok")
    assert isinstance(answer, ShownData)
    assert isinstance(answer.data, TrainingEstimate)
    assert answer.data.machine.accelerator_count == 8
    assert str(answer).splitlines() == list(answer.lines)
    assert answer._repr_html_().startswith("<pre>")


def test_machines_may_be_varied() -> None:
    def seconds(on: Machines | str) -> float:
        answer = twofold.estimate.collective("all_reduce", on, size="1 GB").data
        return float(answer.idle_s.value)  # type: ignore[union-attr]

    assert seconds(Machines("8x8xH100-SXM")) == seconds("8x8xH100-SXM")
    assert seconds(Machines("8x8xH100-SXM", nic="200 Gb/s")) > seconds("8x8xH100-SXM")


def test_an_engine_may_carry_its_release() -> None:
    def served(engine: str) -> ServingEstimate:
        answer = twofold.estimate.serve(
            "llama-3.1-8b",
            "1xH100-SXM",
            input_tokens="500",
            output_tokens="100 tok",
            concurrency=8,
            engine=engine,
        )
        assert isinstance(answer.data, ServingEstimate)
        return answer.data

    assert served("vllm==0.6.0").replica.engine == "vllm 0.6.0"
    assert served("vllm 0.6.0").percentiles == served("vllm==0.6.0").percentiles
    assert served("vllm").replica.engine != "vllm"  # the newest release that is known


def test_errors_are_the_trees_own() -> None:
    with pytest.raises(InputError):
        twofold.estimate.roofline("llama-9", "H200")
    with pytest.raises(InfeasibleError):
        twofold.estimate.serve(
            "llama-3.1-405b", "1xL4", input_tokens="500", output_tokens="100", concurrency=1
        )


NAMED = [
    # checkpoint, machines, engine, weights, cache, what it multiplies in
    ("openai/gpt-oss-120b", "1xB200", "vllm", "mxfp4", "bf16", "mxfp8"),
    ("openai/gpt-oss-120b", "1xMI355X", "vllm", "mxfp4", "bf16", "mxfp8"),
    ("openai/gpt-oss-120b", "1xH100", "vllm", "mxfp4", "bf16", "bf16"),
    ("Qwen/Qwen3-32B-FP8", "2xA100-80GB", "sglang", "fp8", "bf16", "bf16"),
    ("Qwen/Qwen3-32B-FP8", "2xH100", "tensorrt-llm", "fp8", "fp8", "fp8"),
    ("Qwen/Qwen3-32B-AWQ", "1xA100-80GB", "vllm", "int4", "bf16", "bf16"),
    ("RedHatAI/Llama-3.3-70B-Instruct-quantized.w4a16", "1xH100", "vllm", "int4", "bf16", "bf16"),
    ("amd/Llama-3.3-70B-Instruct-FP8-KV", "1xMI300X", "vllm", "fp8", "fp8", "fp8"),
    ("nvidia/DeepSeek-R1-NVFP4", "8xB200", "vllm", "nvfp4", "fp8", "nvfp4"),
    ("nvidia/DeepSeek-R1-NVFP4", "8xH200", "vllm", "nvfp4", "fp8", "bf16"),
]


@pytest.mark.parametrize(("model", "on", "engine", "weights", "cache", "maths"), NAMED)
def test_a_checkpoint_is_served_in_its_own_formats_wherever_it_fits(
    model: str, on: str, engine: str, weights: str, cache: str, maths: str
) -> None:
    answer = twofold.estimate.serve(
        model, on, engine=engine, input_tokens="1000", output_tokens="200", concurrency=4
    )
    assert f"{weights} weights · {cache} KV · maths in {maths}" in "\n".join(answer.lines)


def test_a_block_scaled_format_is_under_the_roof_of_the_units_that_multiply_it() -> None:
    blackwell, hopper = (twofold.estimate.roofline("gpt-oss-120b", on).data for on in ("B200", "H200"))
    assert (blackwell.weights_format, hopper.weights_format) == ("mxfp4", "mxfp4")
    assert (
        blackwell.peak_flops_per_s
        == twofold.estimate.roofline("llama-3.1-8b", "B200", weights="fp8").data.peak_flops_per_s
    )
    assert hopper.peak_flops_per_s == twofold.estimate.roofline("llama-3.1-8b", "H200").data.peak_flops_per_s


def test_weights_left_out_are_in_the_format_they_were_published_in() -> None:
    questions = {"gpt-oss-120b": "mxfp4", "deepseek-v3": "fp8", "llama-3.1-8b": "bf16"}
    for model, expected in questions.items():
        answer = twofold.estimate.serve(
            model, "8xH200", input_tokens="100", output_tokens="100", concurrency=1
        )
        assert f"{expected} weights" in "\n".join(answer.lines)
