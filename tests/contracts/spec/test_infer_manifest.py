"""`init --from` what starts a script, is read by one, or holds an engine's line: the spec of the script."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.rendered import texts, with_replica, with_run
from twofold.app.sources import names_of
from twofold.catalog.catalog import load_catalog
from twofold.contracts.names import Names
from twofold.contracts.results.plan import Plan
from twofold.contracts.spec.infer_manifest import launched
from twofold.contracts.spec.inferring import infer_spec
from twofold.contracts.spec.reader import parse_spec
from twofold.contracts.spec.spec import Spec
from twofold.core.errors import TwofoldError

ROOT = Path(__file__).parents[3]
EXAMPLES = ("assistant", "finetune", "laptop", "moe", "portfolio")


@pytest.fixture(scope="module")
def names() -> Names:
    return names_of(load_catalog())


def written(plan: Plan, target: str, folder: Path) -> list[Path]:
    for path, text in texts(plan, target).items():
        (folder / path).write_text(text, "utf-8")
    return sorted(each for each in folder.iterdir() if each.suffix != ".py")


def read(file: Path, names: Names) -> Spec:
    """Without the name, which is the file's."""
    text = infer_spec(str(file), names)
    return parse_spec(text, str(file.parent / "twofold.yaml"), names).model_copy(update={"name": "same"})


def refused(file: Path, names: Names) -> TwofoldError:
    with pytest.raises(TwofoldError) as caught:
        infer_spec(str(file), names)
    assert caught.value.exit_code == 2
    return caught.value


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("target", ["shell", "slurm", "kubernetes", "skypilot"])
def test_what_starts_or_is_read_by_a_script_is_read_as_it(
    target: str, name: str, examples: dict[str, Plan], names: Names, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_bytes((ROOT / "examples" / "laptop" / "config.json").read_bytes())
    scripts = {each.stem: each for each in written(examples[name], "shell", tmp_path) if each.suffix == ".sh"}
    files = written(examples[name], target, tmp_path)
    read_files = 0
    for file in files:
        stem = file.name.split(".")[0]
        if stem in scripts:
            assert read(file, names) == read(scripts[stem], names), file.name
            read_files += file.suffix != ".sh"
        elif file.name != "config.json":
            refused(file, names)
    beside = len(scripts) if target != "shell" else {"finetune": 1, "laptop": 1}.get(name, 0)
    assert read_files >= beside


@pytest.mark.parametrize(
    ("name", "engine", "count"),
    [
        *(("finetune", engine, 1) for engine in ("vllm", "sglang", "transformers", "llama.cpp")),
        ("moe", "sglang", 8),
    ],
)
def test_an_engine_of_compose_is_read_as_that_of_its_script(
    name: str, engine: str, count: int, examples: dict[str, Plan], names: Names, tmp_path: Path
) -> None:
    plan = with_replica(examples[name], engine=engine)
    (script,) = (each for each in written(plan, "shell", tmp_path) if each.name == f"{name}-serve.sh")
    (file,) = (each for each in written(plan, "compose", tmp_path) if "compose" in each.name)
    assert read(file, names) == read(script, names)
    (service,) = read(file, names).services
    assert service.on is not None and service.on.accelerators_per_node == count


def test_engines_that_differ_are_refused_and_a_script_is_asked_for(
    examples: dict[str, Plan], names: Names, tmp_path: Path
) -> None:
    (file,) = written(examples["assistant"], "compose", tmp_path)
    error = refused(file, names)
    assert "engines that differ" in error.message and "give the script" in error.hint


@pytest.mark.parametrize("kind", ["pretrain", "finetune"])
def test_a_toml_of_torchtitan_alone_says_the_same_run(
    kind: str, examples: dict[str, Plan], names: Names, tmp_path: Path
) -> None:
    plan = with_run(examples["finetune"], framework="torchtitan", kind=kind)
    written(plan, "shell", tmp_path)
    whole = read(tmp_path / "finetune.sh", names)
    (tmp_path / "finetune.sh").unlink()
    alone = read(tmp_path / "finetune.toml", names)
    assert alone == whole
    assert (alone.training[0].kind, alone.training[0].steps) == (kind, plan.training[0].run.steps)


@pytest.mark.parametrize(("framework", "ending"), [("deepspeed", "json"), ("pytorch-fsdp", "yaml")])
def test_what_says_no_steps_is_read_with_its_script_and_refused_alone(
    framework: str, ending: str, examples: dict[str, Plan], names: Names, tmp_path: Path
) -> None:
    written(with_run(examples["finetune"], framework=framework), "shell", tmp_path)
    (file,) = tmp_path.glob(f"finetune.*.{ending}")
    assert read(file, names) == read(tmp_path / "finetune.sh", names)
    (tmp_path / "finetune.sh").unlink()
    assert "give the script" in refused(file, names).hint


def test_a_script_that_is_not_there_is_named(examples: dict[str, Plan], names: Names, tmp_path: Path) -> None:
    written(examples["finetune"], "slurm", tmp_path)
    (tmp_path / "finetune.sh").unlink()
    assert (
        "starts `finetune.sh`, which is not beside it" in refused(tmp_path / "finetune.sbatch", names).message
    )


def test_people_write_lines_of_compose_as_text(names: Names, tmp_path: Path) -> None:
    file = tmp_path / "compose.yaml"
    line = "vllm serve Qwen/Qwen3-8B --tensor-parallel-size 2"
    file.write_text(f"services: {{one: {{image: x, command: {json.dumps(line)}}}}}\n", "utf-8")
    assert read(file, names) == parse_spec(infer_spec(line, names), "twofold.yaml", names).model_copy(
        update={"name": "same"}
    )


@pytest.mark.parametrize(
    "file", ["shell/ads-rank.sh", "shell/ads-ranker.sh", "compose/ads-rank.compose.yaml"]
)
def test_software_of_ones_own_is_said_to_name_no_model(file: str, names: Names) -> None:
    said = refused(ROOT / "tests" / "rendering" / "golden" / "recommender" / file, names)
    assert "nothing in it says a model" in said.message and "measured" in said.hint


def test_a_prompt_that_names_a_script_and_a_neighbour_that_is_no_text_are_none_of_it(
    names: Names, tmp_path: Path
) -> None:
    row = {"arrival_s": 0.0, "input_tokens": 10, "output_tokens": 5, "prompt": "run install.sh please"}
    log = tmp_path / "requests.json"
    log.write_text("".join(f"{json.dumps(row | {'arrival_s': float(at)})}\n" for at in range(4)), "utf-8")
    (tmp_path / "other.sh").write_bytes(b"\xff\xfe")
    lines = tmp_path / "requests.jsonl"
    lines.write_bytes(log.read_bytes())
    assert read(log, names) == read(lines, names)


def test_aliases_that_name_themselves_or_multiply_end(names: Names, tmp_path: Path) -> None:
    file = tmp_path / "compose.yaml"
    many = "".join(f"a{at}: &a{at} [{', '.join([f'*a{at - 1}'] * 9)}]\n" for at in range(1, 12))
    for text in ("services: &x {command: [sh], again: *x}\n", f"a0: &a0 {{command: [sh]}}\n{many}"):
        file.write_text(text, "utf-8")
        refused(file, names)


@given(text=st.text(max_size=80), suffix=st.sampled_from([".yaml", ".sbatch", ".toml", ".json"]))
def test_whatever_it_holds_is_read_or_refused(text: str, suffix: str) -> None:
    path = Path("absent", f"file{suffix}")
    try:
        launched(path, text)
        launched(path, f"a: {{command: [{text}]}}")
    except TwofoldError as error:
        assert error.exit_code == 2
