"""Workers for prompts and for answers: each engine's words, what joins them, and that they are the plan's."""

import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.rendered import after, words_of
from twofold.app.rendering import render
from twofold.contracts.results.plan import Plan
from twofold.contracts.results.serving import Workers
from twofold.core.errors import ValueRefusedError

PREFILL, DECODE = "assistant-serve-chat-prefill", "assistant-serve-chat-decode"


@pytest.fixture
def plan(examples: dict[str, Plan]) -> Plan:
    return examples["assistant"]


def workers(plan: Plan) -> list[Workers]:
    return [each for choice in plan.serving[0].choices for each in choice.workers]


def with_engine(plan: Plan, engine: str) -> Plan:
    """The plan with both kinds of workers on another engine."""
    service = plan.serving[0]
    choices = tuple(
        replace(
            choice,
            workers=tuple(
                replace(each, replica=replace(each.replica, engine=engine)) for each in choice.workers
            ),
        )
        for choice in service.choices
    )
    return replace(plan, serving=(replace(service, choices=choices),))


def files(plan: Plan, target: str = "shell") -> dict[str, str]:
    return {each.path: each.text for each in render(plan, target, disaggregated=True).files}  # type: ignore[arg-type]  # by name


def test_the_accelerators_of_workers_are_those_that_the_choice_counts(plan: Plan) -> None:
    (choice,) = (each for each in plan.serving[0].choices if each.workers)
    apart = {each.classes for each in choice.workers}
    others = [pool for pool in plan.serving[0].pools if pool.classes not in apart]
    sizes = [(each.replica.accelerator_count, each.replica_count) for each in (*choice.workers, *others)]
    assert sum(size * count for size, count in sizes) == choice.accelerator_count
    assert {each.role for each in choice.workers} == {"prefill", "decode"}


def test_workers_have_the_layout_that_was_weighed(plan: Plan, tmp_path: Path) -> None:
    found = files(plan)
    for each in workers(plan):
        words = words_of(found[f"assistant-serve-{each.classes[0]}-{each.role}.sh"], tmp_path)
        assert words[:2] == ["vllm", "serve"]
        tp = each.replica.tp or 1
        assert (after(words, "--tensor-parallel-size") == str(tp)) if tp > 1 else True
        assert json.loads(after(words, "--kv-transfer-config"))["kv_connector"] == "NixlConnector"
    ports = [line for text in found.values() for line in text.splitlines() if "SIDE_CHANNEL_PORT=" in line]
    assert len(ports) == len(set(ports)) == len(workers(plan))


def test_sglang_says_the_side_and_where_sides_meet(plan: Plan, tmp_path: Path) -> None:
    found = files(with_engine(plan, "sglang"))
    prompts, answers = (words_of(found[f"{name}.sh"], tmp_path) for name in (PREFILL, DECODE))
    assert after(prompts, "--disaggregation-mode") == "prefill"
    assert after(answers, "--disaggregation-mode") == "decode"
    assert "--disaggregation-bootstrap-port" in prompts and "--disaggregation-bootstrap-port" not in answers


@pytest.mark.parametrize(
    ("engine", "program"),
    [("vllm", "vllm-router --vllm-pd-disaggregation"), ("sglang", "python -m sglang_router.launch_router")],
)
def test_the_router_is_told_all_workers(engine: str, program: str, plan: Plan, tmp_path: Path) -> None:
    shown = started(files(with_engine(plan, engine))["assistant-serve-chat-router.sh"], tmp_path)
    assert shown.startswith(program) and shown.count("--prefill http://") == 2
    assert shown.count("--decode http://c:1") == 1 and "--port 9000" in shown


def test_tensorrt_llm_reads_its_workers_from_a_file(plan: Plan, tmp_path: Path) -> None:
    found = files(with_engine(plan, "tensorrt-llm"))
    assert "disable_overlap_scheduler: true" in found[f"{PREFILL}.options.yaml"]
    assert "disable_overlap_scheduler" not in found[f"{DECODE}.options.yaml"]
    assert f"$FILES/{PREFILL}.options.yaml" in found[f"{PREFILL}.sh"]
    shown = started(found["assistant-serve-chat-router.sh"], tmp_path)
    assert shown.startswith("trtllm-serve disaggregated -c ")
    text = Path(shown.split()[-1]).read_text("utf-8")
    yaml = pytest.importorskip("ruamel.yaml").YAML(typ="safe").load(text)
    assert yaml["context_servers"] == {"num_instances": 2, "urls": ["a:1", "b:1"]}
    assert yaml["generation_servers"] == {"num_instances": 1, "urls": ["c:1"]}


def started(script: str, folder: Path) -> str:
    """What a router's script would start, with two workers for prompts and one for answers."""
    path = folder / "router.sh"
    path.write_text(script, "utf-8")
    set_ = {"PREFILL": "http://a:1 http://b:1", "DECODE": "http://c:1", "PATH": "/usr/bin:/bin"}
    shown = f'exec() {{ echo "$@"; }}; . {path}'
    bash = shutil.which("bash") or "bash"
    made = {**set_, "TMPDIR": str(folder)}
    return subprocess.run(
        [bash, "-c", shown], capture_output=True, env=made, check=True, text=True
    ).stdout.strip()


def test_slurm_has_a_job_for_each_side(plan: Plan) -> None:
    found = files(plan, "slurm")
    for each in workers(plan):
        text = found[f"assistant-serve-{each.classes[0]}-{each.role}.sbatch"]
        assert f"#SBATCH --array=0-{each.replica_count - 1} " in text
    said = "# lost: the bill and rehearsals"
    assert all(said in text for text in found.values() if "By the plan of" in text)


def test_what_joins_no_workers_says_so(plan: Plan) -> None:
    for target in ("kubernetes", "compose", "ray", "skypilot", "triton"):
        with pytest.raises(ValueRefusedError, match="joins no workers"):
            files(plan, target)
    with pytest.raises(ValueRefusedError, match="has no workers"):
        files(with_engine(plan, "transformers"))
    nothing = replace(plan, serving=(replace(plan.serving[0], choices=()),))
    with pytest.raises(ValueRefusedError, match="no workers for prompts apart"):
        files(nothing)
