"""Which training software takes which line, and what a layout is in its words."""

import json
import tomllib
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.rendered import after, texts, with_run, words_of
from twofold.app.loop_settings import laid_out, train_settings
from twofold.app.sources import names_of
from twofold.catalog.catalog import load_catalog
from twofold.contracts.names import unknown_name
from twofold.contracts.results.plan import Plan
from twofold.contracts.spec.reader import read_spec
from twofold.core.errors import ValueRefusedError
from twofold.live.training.train_job import RECOMPUTES, TrainJob, launch_command, main
from twofold.rendering.sharded import OWN_RECOMPUTES
from twofold.rendering.trainers import TRAINERS

ROOT = Path(__file__).parents[2]


def script(plan: Plan) -> str:
    return next(
        text for path, text in texts(plan, "shell").items() if path.endswith(".sh") and "serve" not in path
    )


def beside(plan: Plan, ending: str) -> str:
    return next(text for path, text in texts(plan, "shell").items() if path.endswith(ending))


@pytest.mark.parametrize("framework", TRAINERS)
def test_every_software_is_started_on_the_planned_machines_for_the_planned_steps(
    framework: str, examples: dict[str, Plan], tmp_path: Path
) -> None:
    plan = with_run(examples["assistant"], framework=framework)
    files = texts(plan, "shell")
    words = words_of(script(plan), tmp_path)
    said = " ".join(words) + "".join(files.values())
    assert words[0] in ("torchrun", "accelerate")
    assert "3" in words  # NODE_RANK, which who starts it sets
    assert "node-0" in words
    assert "166894" in said
    assert any(each in said for each in ("--nnodes 64", "num_machines: 64"))
    assert "8192" in said  # tokens of a sequence


def test_software_that_nobody_knows_is_refused_with_those_that_are(examples: dict[str, Plan]) -> None:
    with pytest.raises(ValueRefusedError) as caught:
        texts(with_run(examples["assistant"], framework="paxml"), "shell")
    assert "`paxml`" in caught.value.message
    assert "torchtitan" in caught.value.hint


def test_every_software_that_a_refusal_lists_passes_a_check() -> None:
    known = names_of(load_catalog())
    assert [name for name in TRAINERS if unknown_name(name, ("frameworks",), known)] == []


@pytest.mark.parametrize(
    ("said", "starts"),
    [
        ("fsdp", "torchtitan"),
        ("FSDP", "torchtitan"),
        ("pytorch-fsdp", "accelerate"),
        ("NEMO", "run_recipe.py"),
    ],
)
def test_software_is_known_however_it_is_spelt(said: str, starts: str, examples: dict[str, Plan]) -> None:
    assert starts in script(with_run(examples["finetune"], framework=said)).partition("options=(")[2]


def test_megatron_gets_every_size_that_is_more_than_one(examples: dict[str, Plan], tmp_path: Path) -> None:
    layout = {"tp": 4, "pp": 4, "vpp": 5, "cp": 2, "dp": 16, "zero_stage": 1, "recompute": "selective"}
    words = words_of(script(with_run(examples["assistant"], layout=layout)), tmp_path)
    said = {
        "--tensor-model-parallel-size": "4",
        "--pipeline-model-parallel-size": "4",
        "--num-virtual-stages-per-pipeline-rank": "5",
        "--context-parallel-size": "2",
        "--recompute-granularity": "selective",
        "--recompute-modules": "core_attn",
        "--global-batch-size": "512",
        "--num-layers": "80",
    }
    assert {flag: after(words, flag) for flag in said} == said
    assert {"--use-distributed-optimizer", "--sequence-parallel", "--bf16"} <= set(words)
    assert "--use-megatron-fsdp" not in words
    assert "--expert-model-parallel-size" not in words


@pytest.mark.parametrize(
    ("changed", "hidden"),
    [
        ({"layout": {"zero_stage": 1}}, {"grad_reduce", "param_gather"}),
        ({"layout": {"zero_stage": 3}}, {"grad_reduce", "param_gather"}),
        ({"layout": {"zero_stage": 0}}, {"grad_reduce"}),
        ({"layout": {"dp": 1, "cp": 1, "pp": 64, "tp": 8, "zero_stage": 0}}, set()),
        ({"framework": "megatron-lm-2023", "layout": {"zero_stage": 1}}, set()),
    ],
)
def test_megatron_hides_the_traffic_that_the_plan_hides(
    changed: dict[str, Any], hidden: set[str], examples: dict[str, Plan], tmp_path: Path
) -> None:
    words = words_of(script(with_run(examples["assistant"], **changed)), tmp_path)
    said = {f"--overlap-{each.replace('_', '-')}" for each in hidden}
    assert {each for each in words if each.startswith("--overlap")} == said
    bridge = {"framework": "megatron-bridge", **changed}
    if bridge["framework"] == "megatron-bridge":
        words = words_of(script(with_run(examples["assistant"], **bridge)), tmp_path)
        assert {each for each in words if "overlap" in each} == {
            f"ddp.overlap_{each}=true" for each in hidden
        }


def test_megatron_drops_nothing_of_a_model_that_was_trained_so(
    examples: dict[str, Plan], tmp_path: Path
) -> None:
    for name in ("assistant", "moe"):
        words = words_of(script(examples[name]), tmp_path)
        assert {after(words, each) for each in ("--attention-dropout", "--hidden-dropout")} == {"0"}
    told = script(with_run(examples["assistant"], model="gpt3-175b"))
    assert "--attention-dropout 0" not in told
    assert "lost: dropout of gpt3-175b" in told


def test_megatron_asks_for_what_no_catalogue_row_has(examples: dict[str, Plan], tmp_path: Path) -> None:
    text = script(examples["assistant"])
    assert "${ROTARY_BASE:?set it to rope_theta of the config of llama-3.1-70b" in text
    assert after(words_of(text, tmp_path), "--rotary-base") == "500000"
    (lost,) = [line for line in text.splitlines() if "lost: the schedule of the learning rate" in line]
    assert all(each in lost for each in ("--lr-warmup-iters", "--lr-decay-style", "--min-lr"))


@pytest.mark.parametrize("share", [0.0, 0.02, 0.2])
@pytest.mark.parametrize("steps", [3.0, 500.0, 1999.0, 166894.0])
def test_megatron_evaluates_within_what_the_plan_counts(
    share: float, steps: float, examples: dict[str, Plan], tmp_path: Path
) -> None:
    run = examples["assistant"].training[0].run
    parts = tuple(
        replace(each, value=replace(each.value, value=share, low=share, high=share))
        if each.name == "validation"
        else each
        for each in run.headroom
    )
    plan = with_run(examples["assistant"], run=replace(run, headroom=parts, steps=steps))
    words = words_of(script(plan), tmp_path)
    every, batches = int(after(words, "--eval-interval")), int(after(words, "--eval-iters"))
    # Each batch takes half a step at most; one evaluation each interval, and two when the run is over.
    assert (steps // every + 2) * batches * 0.5 <= share * steps
    assert (batches > 0) == (share * steps >= (steps // every + 2) * 0.5)
    if batches:
        assert (steps // every + 2) * (batches + 1) * 0.5 > share * steps  # and no less than that
    bridge = words_of(
        script(replace(plan, training=(replace(plan.training[0], framework="nemo"),))), tmp_path
    )
    assert {f"validation.eval_interval={every}", f"validation.eval_iters={batches}"} <= set(bridge)


def test_megatron_gets_the_experts_latent_attention_and_8_bits_of_a_mixture(
    examples: dict[str, Plan], tmp_path: Path
) -> None:
    words = words_of(script(examples["moe"]), tmp_path)
    assert after(words, "--num-experts") == "256"
    assert after(words, "--moe-layer-freq") == "([0]*3+[1]*58)"
    assert after(words, "--kv-lora-rank") == "512"
    assert after(words, "--fp8-format") == "hybrid"
    assert words[words.index("--recompute-modules") + 1 :][:3] == ["layernorm", "moe_act", "mla_up_proj"]
    assert "lost: DualPipe" in script(examples["moe"])


@pytest.mark.parametrize(("stage", "reshard", "shard"), [(3, "always", 8), (2, "never", 8), (0, "never", 1)])
def test_torchtitan_shards_as_planned(
    stage: int, reshard: str, shard: int, examples: dict[str, Plan]
) -> None:
    said = tomllib.loads(beside(with_run(examples["finetune"], layout={"zero_stage": stage}), ".toml"))
    sizes = said["parallelism"]
    assert (sizes["fsdp_reshard_after_forward"], sizes["data_parallel_shard_degree"]) == (reshard, shard)
    assert sizes["data_parallel_replicate_degree"] * shard == 8
    assert (said["model"]["name"], said["model"]["flavor"]) == ("llama3", "8B")
    assert said["training"]["global_batch_size"] == 64


@pytest.mark.parametrize(("kind", "mode"), [("pretrain", "pretrain"), ("finetune", "sft"), ("lora", "lora")])
def test_megatron_bridge_overrides_a_recipe(
    kind: str, mode: str, examples: dict[str, Plan], tmp_path: Path
) -> None:
    layout = {"pp": 4, "vpp": 2, "dp": 32, "zero_stage": 1, "recompute": "full"}
    plan = with_run(examples["assistant"], framework="megatron-bridge", kind=kind, layout=layout)
    words = words_of(script(plan), tmp_path)
    assert after(words, "--mode") == mode
    assert after(words, "--recipe") == "given"
    assert ("--pretrained_checkpoint" in words) == (kind != "pretrain")
    said = {"model.pipeline_model_parallel_size=4", "model.virtual_pipeline_model_parallel_size=2"}
    said |= {"ddp.use_distributed_optimizer=true", "model.recompute_granularity=full"}
    assert said <= set(words)


def test_torchtitan_runs_a_pipeline_of_whole_micro_batches(examples: dict[str, Plan]) -> None:
    layout = {"pp": 4, "vpp": 2, "dp": 2, "micro_batch": 2}
    said = tomllib.loads(beside(with_run(examples["finetune"], layout=layout), ".toml"))
    sizes = said["parallelism"]
    assert sizes["pipeline_parallel_schedule"] == "Interleaved1F1B"
    assert sizes["pipeline_parallel_layers_per_stage"] * 4 * 2 == 32
    assert said["training"]["local_batch_size"] * 2 == 64  # over two data parallel ranks


def test_deepspeed_multiplies_to_the_batch(examples: dict[str, Plan], tmp_path: Path) -> None:
    plan = with_run(examples["finetune"], framework="deepspeed", layout={"zero_stage": 3, "micro_batch": 2})
    said = json.loads(beside(plan, ".deepspeed.json"))
    micro, added = said["train_micro_batch_size_per_gpu"], said["gradient_accumulation_steps"]
    assert micro * added * 8 == said["train_batch_size"] == 64
    assert said["zero_optimization"]["stage"] == 3
    words = words_of(script(plan), tmp_path)
    assert after(words, "--gradient_accumulation_steps") == str(added)
    assert after(words, "--deepspeed").endswith(".deepspeed.json")
    assert "zero_optimization is training.finetune.layout.zero_stage" in script(plan)


def test_accelerate_shards_and_says_what_it_cannot(examples: dict[str, Plan]) -> None:
    layout = {"tp": 2, "pp": 2, "dp": 2, "zero_stage": 1, "recompute": "mlp"}
    text = beside(with_run(examples["finetune"], framework="pytorch-fsdp", layout=layout), ".accelerate.yaml")
    said: Any = YAML(typ="safe").load(text)
    assert said["num_processes"] == 8
    assert said["fsdp_config"]["fsdp_version"] == 2
    assert said["parallelism_config"]["parallelism_config_tp_size"] == 2
    lost = [line for line in text.splitlines() if line.startswith("# lost:")]
    assert [
        word for word in ("pipeline", "mlp recompute", "ZeRO-1") if any(word in line for line in lost)
    ] == [
        "pipeline",
        "mlp recompute",
        "ZeRO-1",
    ]


def test_our_trainer_reads_the_order_that_is_rendered(examples: dict[str, Plan], tmp_path: Path) -> None:
    plan = examples["laptop"]
    order = json.loads(beside(plan, ".job.json"))
    job = TrainJob(**order, folder=tmp_path, model_config=tmp_path)
    assert (job.rank_count, job.steps, job.sequence_tokens, job.global_batch_sequences) == (2, 110, 128, 8)
    assert job.zero_stage == 3
    assert 1 <= job.checkpoint_every_steps <= job.steps
    assert words_of(script(plan), tmp_path)[:3] == ["python", "-m", "twofold.live.training.train_job"]


def test_up_starts_workers_by_the_very_line_of_a_rendered_order(
    examples: dict[str, Plan], tmp_path: Path
) -> None:
    """`up` gives another order only where it tries out what it does: it saves often, and kills a rank."""
    spec = read_spec(ROOT / "examples" / "laptop" / "twofold.yaml")
    of_up = laid_out(train_settings(spec, tmp_path), examples["laptop"])
    order = json.loads(beside(examples["laptop"], ".job.json"))
    rendered = TrainJob(**order, folder=of_up.folder, model_config=of_up.model_config)
    assert launch_command(of_up) == launch_command(rendered)
    assert {name for name, value in asdict(of_up).items() if asdict(rendered)[name] != value} == {
        "name",
        "checkpoint_every_steps",
        "seed",
        "kill_rank",
        "kill_after_step",
    }


def test_our_trainer_knows_what_it_is_told_to_recompute() -> None:
    assert set(OWN_RECOMPUTES) == set(RECOMPUTES)


def test_an_order_that_cannot_be_run_is_refused_by_name(examples: dict[str, Plan], tmp_path: Path) -> None:
    order, config = tmp_path / "tiny.job.json", tmp_path / "config.json"
    config.write_text('{"model_type": "llama", "max_position_embeddings": 64}', "utf-8")
    told = [str(order), "--folder", str(tmp_path / "run"), "--model-config", str(config)]
    order.write_text(beside(examples["laptop"], ".job.json"), "utf-8")
    with pytest.raises(ValueRefusedError, match="sequences of 128 tokens exceed the model's longest"):
        main(told)
    order.write_text('{"rank": 2}', "utf-8")
    with pytest.raises(ValueRefusedError, match="`rank` is no key of an order"):
        main(told)


def test_a_run_that_starts_from_weights_is_told_where_they_are(
    examples: dict[str, Plan], tmp_path: Path
) -> None:
    for framework, flag in (
        ("torchtitan", "--checkpoint.initial_load_path"),
        ("megatron-core", "--pretrained-checkpoint"),
        ("deepspeed", "--model_name_or_path"),
    ):
        assert (
            after(words_of(script(with_run(examples["finetune"], framework=framework)), tmp_path), flag)
            == "weights"
        )
        from_nothing = with_run(examples["finetune"], framework=framework, kind="pretrain")
        assert flag not in words_of(script(from_nothing), tmp_path)
