"""Checkpoints are written while a run trains, as its plan counts, or the file says what it takes instead."""

import json
import re
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from tests.rendered import after, texts, with_run, words_of
from twofold.contracts.results.plan import Plan

BESIDE = "lost: checkpoints while it trains"


def script(plan: Plan) -> str:
    return next(
        text for path, text in texts(plan, "shell").items() if path.endswith(".sh") and "serve" not in path
    )


def stopping(plan: Plan) -> Plan:
    """The same with runs that stop for whole writes, by their plan."""
    run = plan.training[0]
    saved = replace(run.run.checkpoints, pause_s=run.run.checkpoints.write_s)
    return replace(plan, training=(replace(run, run=replace(run.run, checkpoints=saved)),))


def test_megatron_writes_while_it_trains_as_planned(examples: dict[str, Plan], tmp_path: Path) -> None:
    plan = with_run(examples["assistant"], layout={"zero_stage": 1})
    words = words_of(script(plan), tmp_path)
    assert after(words, "--ckpt-format") == "torch_dist"
    assert {"--async-save", "--use-persistent-ckpt-worker"} <= set(words)
    assert BESIDE not in script(plan)
    assert "--async-save" not in words_of(script(stopping(plan)), tmp_path)


def test_sharded_megatron_says_what_its_whole_writes_take(examples: dict[str, Plan], tmp_path: Path) -> None:
    plan = with_run(examples["assistant"], layout={"zero_stage": 3})
    words = words_of(script(plan), tmp_path)
    assert after(words, "--ckpt-format") == "fsdp_dtensor"
    assert "--async-save" not in words  # refused by the version that the line is of
    (lost,) = [line for line in script(plan).splitlines() if BESIDE in line]
    count = 166894 // int(after(words, "--save-interval"))
    whole = f"{count} × 60 s = {count * 60 / 3600:.0f} h"
    assert f"it stops for training.pretrain.run.checkpoints.write_s at each, {whole}" in lost
    assert "where the plan counts 23 min by training.pretrain.run.checkpoints.pause_s" in lost
    assert BESIDE not in script(stopping(plan))


@pytest.mark.parametrize(("stage", "form"), [(1, "torch_dist"), (3, "fsdp_dtensor")])
def test_megatron_bridge_writes_while_it_trains_in_both_formats(
    stage: int, form: str, examples: dict[str, Plan], tmp_path: Path
) -> None:
    plan = with_run(examples["assistant"], framework="megatron-bridge", layout={"zero_stage": stage})
    words = set(words_of(script(plan), tmp_path))
    assert {f"checkpoint.ckpt_format={form}", "checkpoint.async_save=true"} <= words
    assert "checkpoint.async_save=true" not in words_of(script(stopping(plan)), tmp_path)


def test_torchtitan_writes_as_the_plan_counts(examples: dict[str, Plan]) -> None:
    for plan, mode in ((examples["finetune"], "async"), (stopping(examples["finetune"]), "disabled")):
        (text,) = [text for path, text in texts(plan, "shell").items() if path.endswith(".toml")]
        assert tomllib.loads(text)["checkpoint"]["async_mode"] == mode


@pytest.mark.parametrize("framework", ["deepspeed", "pytorch-fsdp"])
def test_the_trainer_of_transformers_says_that_it_stops(framework: str, examples: dict[str, Plan]) -> None:
    plan = with_run(examples["finetune"], framework=framework)
    assert re.search(rf"{BESIDE}: the Trainer .* × 60 s = ", script(plan))
    assert BESIDE not in script(stopping(plan))


def test_our_trainer_writes_behind_and_loses_nothing(examples: dict[str, Plan]) -> None:
    assert BESIDE not in script(examples["laptop"])
    assert json.loads(
        next(text for path, text in texts(examples["laptop"], "shell").items() if path.endswith(".job.json"))
    )["checkpoint_every_steps"]
