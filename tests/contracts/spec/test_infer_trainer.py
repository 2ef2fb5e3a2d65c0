"""`init --from` a training script: the same run as was rendered; what is cut or missing is refused."""

import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.rendered import texts, with_run
from twofold.app.sources import names_of
from twofold.catalog.catalog import load_catalog
from twofold.contracts.names import Names
from twofold.contracts.results.plan import Plan
from twofold.contracts.results.training import TrainingPlan
from twofold.contracts.spec.inferring import infer_spec
from twofold.contracts.spec.reader import parse_spec
from twofold.contracts.spec.training_run import TrainingRun
from twofold.core.errors import TwofoldError
from twofold.rendering.trainers import TRAINERS

ROOT = Path(__file__).parents[3]
EXAMPLES = ("assistant", "finetune", "laptop", "moe", "portfolio")
# Software that the same line starts is read as the first of its names.
CALLED = {
    **dict.fromkeys(("megatron-core-ep-overlap", "megatron-lm-2023"), "megatron-core"),
    "nemo": "megatron-bridge",
    **dict.fromkeys(("llm-foundry", "fms-fsdp", "transformers"), "pytorch-fsdp"),
    "deepspeed": "megatron-deepspeed",  # what a spec calls it
}


@pytest.fixture(scope="module")
def names() -> Names:
    """Of the catalogue itself: what is rendered has its names."""
    return names_of(load_catalog())


def scripts_of(plan: Plan, folder: Path) -> dict[str, Path]:
    """The script of every run, by name, with what lies beside it."""
    for path, text in texts(plan, "shell").items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, "utf-8")
    scripts = sorted(folder.rglob("*.sh"))
    return {
        run.name: next(each for each in scripts if f"\n# {run.name}: " in each.read_text("utf-8"))
        for run in plan.training
    }


def read(script: Path, names: Names) -> TrainingRun:
    text = infer_spec(str(script), names)
    (run,) = parse_spec(text, str(script.parent / "twofold.yaml"), names).training
    return run


def assert_same(run: TrainingRun, planned: TrainingPlan, framework: str) -> None:
    machine = planned.machine
    assert run.on is not None
    assert (run.on.accelerator, run.on.accelerators_per_node) == (
        machine.accelerator,
        machine.accelerators_per_node,
    )
    assert run.on.count == machine.node_count
    assert (run.name, run.steps, run.framework) == (planned.name, planned.run.steps, framework)
    assert (run.global_batch_sequences, run.batch_tokens) == (planned.batch_samples, planned.batch_tokens)


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_run_of_the_examples_is_read_back(
    name: str, examples: dict[str, Plan], names: Names, tmp_path: Path
) -> None:
    if name == "laptop":
        (tmp_path / "config.json").write_bytes((ROOT / "examples" / "laptop" / "config.json").read_bytes())
    planned = {run.name: run for run in examples[name].training}
    for which, script in scripts_of(examples[name], tmp_path).items():
        run, was = read(script, names), planned[which]
        assert_same(run, was, was.framework or "")
        assert (run.kind, run.precision) == (was.kind, was.precision)
        if name == "laptop":
            assert run.model.config is not None and run.model.config.name == "config.json"
        else:
            assert load_catalog().model(run.model.name or "").name == was.model


@pytest.mark.parametrize("framework", TRAINERS)
@pytest.mark.parametrize("kind", ["pretrain", "finetune"])
def test_every_trainer_of_the_table_is_read_back(
    framework: str, kind: str, examples: dict[str, Plan], names: Names, tmp_path: Path
) -> None:
    plan = with_run(examples["assistant"], framework=framework, kind=kind)
    (script,) = scripts_of(plan, tmp_path).values()
    run = read(script, names)
    assert_same(run, plan.training[0], CALLED.get(framework, framework))
    assert (run.kind, run.precision) == (kind, "bf16")
    if kind == "finetune":
        assert load_catalog().model(run.model.name or "").name == "llama-3.1-70b"


def test_without_its_head_the_machine_is_left_open(
    examples: dict[str, Plan], names: Names, tmp_path: Path
) -> None:
    (script,) = scripts_of(examples["moe"], tmp_path).values()
    script.write_text(re.sub(r"^# pretrain: .*$", "#", script.read_text("utf-8"), flags=re.M), "utf-8")
    assert read(script, names).on is None
    assert "name your machines" in infer_spec(str(script), names)


def refused(script: Path, names: Names) -> TwofoldError:
    with pytest.raises(TwofoldError) as caught:
        infer_spec(str(script), names)
    assert caught.value.exit_code == 2
    return caught.value


def test_a_file_that_is_not_beside_its_script_is_named(
    examples: dict[str, Plan], names: Names, tmp_path: Path
) -> None:
    (script,) = scripts_of(examples["finetune"], tmp_path).values()
    (beside,) = tmp_path.rglob("*.toml")
    beside.write_text("[training\n", "utf-8")
    assert beside.name in refused(script, names).message
    beside.unlink()
    assert beside.name in str(refused(script, names))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("torchrun --nnodes 2 my_script.py", "no line of training software that is known"),
        ("torchrun pretrain_gpt.py --train-iters many", "says no steps"),
        ("torchrun pretrain_gpt.py --train-iters 5 --global-batch-size 0", "says no batch"),
        ("torchrun pretrain_gpt.py --train-iters '5", "ends in the middle"),
        ("# torchrun pretrain_gpt.py", "no line starts training software"),
    ],
)
def test_a_line_that_says_too_little_is_refused(line: str, said: str, names: Names, tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text(f"{line}\n", "utf-8")
    assert said in refused(script, names).message


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(kept=st.sampled_from(range(0, 101, 5)), end=st.sampled_from(["", "'", "\\", "=", "\n)", "$", " --x"]))
def test_a_script_that_is_cut_is_read_or_refused(
    kept: int, end: str, examples: dict[str, Plan], names: Names, tmp_path: Path
) -> None:
    (script,) = scripts_of(examples["moe"], tmp_path).values()
    text = script.read_text("utf-8")
    script.write_text(text[: len(text) * kept // 100] + end, "utf-8")
    try:
        spec = infer_spec(str(script), names)
    except TwofoldError as error:
        assert error.exit_code == 2
    else:
        parse_spec(spec, "twofold.yaml", names)
