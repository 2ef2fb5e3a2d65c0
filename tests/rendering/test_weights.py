"""Which weights are served: the repository that a spec names, else the catalogue's, which says so."""

from dataclasses import replace
from functools import cache
from typing import Any, get_args

import pytest

from tests.rendered import texts
from twofold.app.planning import plan as planned
from twofold.app.rendering import Target, render
from twofold.contracts.results.plan import Plan
from twofold.core.errors import ValueRefusedError

SPEC = """\
name: named
training:
  {name: tune, kind: finetune, model: %s, framework: %s, samples: 20000 seq, sequence: 4096 tok,
   global_batch: 64 seq, on: 1x8xH100-SXM}
serving:
  model: %s
  variants: [%s]
  engine: vllm
  quantisation: [%s]
  on: 1x8xH100-SXM
  classes:
    chat:
      traffic: {rate: 2 req/s, input: 1000 tok, output: 200 tok}
      slo: {ttft_p95: 2 s, tpot_p95: 60 ms}
"""
BASE, TUNED = "meta-llama/Llama-3.1-8B", "meta-llama/Llama-3.1-8B-Instruct"
IN_8_BIT, DISTILLED = "nvidia/Llama-3.1-8B-Instruct-FP8", "deepseek-ai/DeepSeek-R1-Distill-Llama-8B"
each_target = pytest.mark.parametrize("target", get_args(Target))


@cache
def plan_of(
    trained: str, served: str, variants: str = "", formats: str = "bf16", framework: str = "DeepSpeed ZeRO-3"
) -> Plan:
    return planned(SPEC % (trained, framework, served, variants, formats))


@each_target
def test_the_repository_that_a_spec_names_is_what_is_served(target: Target) -> None:
    """`…-8B-Instruct` was planned as the shape `llama-3.1-8b`, and the base model was served for it."""
    plan = plan_of(BASE, TUNED)
    assert (plan.training[0].repository, plan.serving[0].pools[0].repository) == (BASE, TUNED)
    files = texts(plan, target)
    served = [text for path, text in files.items() if "serve" in path]
    assert any(f"{TUNED} " in text or f"{TUNED}}}" in text or f'"{TUNED}"' in text for text in served)
    for text in served:
        assert BASE not in text.replace(TUNED, "")
    trained = "".join(text for path, text in files.items() if path.startswith("named-tune"))
    assert TUNED not in trained and (not trained or BASE in trained)
    assert "as the spec names it" in "".join(served)


@pytest.mark.parametrize("before", ["https://hub.example.org/", "hub.example.org/"])
def test_an_address_names_the_repository_that_it_ends_in(before: str) -> None:
    plan = plan_of("llama-3.1-8b", f"{before}{TUNED}")
    assert plan.serving[0].pools[0].repository == TUNED
    assert f"{TUNED}}}" in texts(plan, "shell")["named-serve.sh"]


@pytest.mark.parametrize("name", [DISTILLED, IN_8_BIT, "Qwen/Qwen3-8B-Base", "meta-llama/Llama-3.1-70B"])
def test_no_other_model_of_the_same_shape_stands_in(name: str) -> None:
    text = texts(plan_of("llama-3.1-8b", name, formats="bf16, fp8"), "shell")["named-serve.sh"]
    assert f":-{name}}}" in text


def test_weights_that_are_published_in_8_bits_are_not_quantised_again() -> None:
    text = texts(plan_of("llama-3.1-8b", IN_8_BIT, formats="fp8"), "shell")["named-serve.sh"]
    assert "--quantization" not in text and "--dtype" not in text
    text = texts(plan_of("llama-3.1-8b", TUNED, formats="fp8"), "shell")["named-serve.sh"]
    assert "--quantization fp8" in text


def test_of_two_models_of_one_shape_that_in_the_planned_format_is_served() -> None:
    for formats, name in (("bf16", TUNED), ("fp8", IN_8_BIT)):
        pool = plan_of("llama-3.1-8b", TUNED, IN_8_BIT, formats).serving[0].pools[0]
        assert (pool.replica.weights_format, pool.repository) == (formats, name)


@each_target
def test_the_catalogue_s_own_repository_says_that_it_is_and_how_another_is_named(target: Target) -> None:
    plan = plan_of("llama-3.1-8b", "llama-3.1-8b")
    said = f"of the catalogue for llama-3.1-8b; for another write `model: {TUNED}`"
    assert said in "".join(texts(plan, target).values())


def test_what_reads_folders_is_told_what_to_fill_them_with() -> None:
    plan = plan_of(BASE, TUNED, framework="torchtitan")
    assert f"set it to a folder with the weights of {BASE}" in texts(plan, "shell")["named-tune.sh"]
    said = f"/weights/meta-llama-llama-3-1-8b # a folder that you fill with {BASE}"
    assert said in texts(plan, "kubernetes")["named-tune.yaml"].replace('"', "")


def test_a_plan_of_before_names_none(examples: dict[str, Plan]) -> None:
    """The field is new: old plans are read, and their weights are the catalogue's."""
    pool = examples["finetune"].serving[0].pools[0]
    assert pool.repository == "" and examples["finetune"].training[0].repository == ""


@pytest.mark.parametrize("name", ["a/$(id)", "a/b`id`", "a/b}", "a", "a/b/c", "a/b c"])
def test_no_repository_of_a_saved_plan_is_run(name: str, examples: dict[str, Plan]) -> None:
    plan: Any = examples["finetune"]
    service = plan.serving[0]
    pools = tuple(replace(each, repository=name) for each in service.pools)
    with pytest.raises(ValueRefusedError):
        render(replace(plan, serving=(replace(service, pools=pools),)))
    with pytest.raises(ValueRefusedError):
        render(replace(plan, training=(replace(plan.training[0], repository=name),)))
