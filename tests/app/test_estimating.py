"""`twofold.estimate` from Python: words in, typed data and lines out."""

import pytest

import twofold
from twofold.answer import ServingEstimate, TrainingEstimate
from twofold.app import Machines
from twofold.core import InfeasibleError, InputError
from twofold.report import ShownData


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


def test_weights_left_out_are_in_the_format_they_were_published_in() -> None:
    questions = {"gpt-oss-120b": "mxfp4", "deepseek-v3": "fp8", "llama-3.1-8b": "bf16"}
    for model, expected in questions.items():
        answer = twofold.estimate.serve(
            model, "8xH200", input_tokens="100", output_tokens="100", concurrency=1
        )
        assert f"{expected} weights" in "\n".join(answer.lines)
