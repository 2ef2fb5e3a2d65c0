"""`render`: every target and every example, names that escape nothing, folders that cannot be written."""

import json
import os
import re
import shlex
import shutil
import subprocess
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from tests import text_format
from tests.conftest import AS_ASKED, ROOT
from tests.object_fields import documents
from tests.rendered import texts
from twofold.app.planning import explain, plan_to_json
from twofold.app.rendered_folder import MANIFEST
from twofold.app.rendering import Rendered, Target, render
from twofold.app.reporting import write_page
from twofold.catalog.catalog import Catalog, load_catalog
from twofold.cli.verbs import TARGETS
from twofold.contracts.results.plan import Plan
from twofold.contracts.spec.reader import read_spec
from twofold.core.data import to_data
from twofold.core.errors import FileError, InfeasibleError, TwofoldError, ValueRefusedError
from twofold.perf.constants import Constants
from twofold.planner import build
from twofold.rendering.trainers import TRAINERS

NAMES = ("assistant", "moe", "finetune", "portfolio", "laptop", "federal", "recommender")
GOLDEN = Path(__file__).parents[1] / "rendering" / "golden"
ONE_HALF = Path(__file__).parents[1] / "requirements" / "specs" / "one-half.yaml"
PATH = re.compile(r"\b(?:training|serving)\.[\w-]+(?:\.[\w-]+)*")
FILE = re.compile(r"[a-z0-9][a-z0-9._-]*(/[a-z0-9][a-z0-9._-]*)*")
COMMENT = re.compile(r"(?:^|\s)# (.*)$", re.M)
REFUSED = (
    ("moe", "triton"),
    ("laptop", "triton"),
    ("recommender", "triton"),
)  # of whose engines the target has none
each_target = pytest.mark.parametrize("target", get_args(Target))
each_made = pytest.mark.parametrize(
    ("name", "target"),
    [(name, target) for target in get_args(Target) for name in NAMES if (name, target) not in REFUSED],
)


def test_the_command_line_offers_what_is_there() -> None:
    assert list(get_args(Target)) == TARGETS


@pytest.fixture(scope="session")
def examples(examples: dict[str, Plan], catalog: Catalog, constants: Constants) -> dict[str, Plan]:
    """Those that all tests take; the federal one, whose plan takes a second more; and measured rows."""
    more = {}
    for name in ("federal", "recommender"):
        spec = read_spec(ROOT / "examples" / name / "twofold.yaml")
        more[name] = build.build_plan(spec, catalog, constants, spec_digest="0", options=AS_ASKED).plan
    return {**examples, **more}


def test_every_example_has_its_files() -> None:
    assert sorted(NAMES) == sorted(each.parent.name for each in (ROOT / "examples").glob("*/twofold.yaml"))


@pytest.mark.parametrize(("name", "target"), REFUSED)
def test_a_target_without_the_engines_of_a_plan_says_so(
    name: str, target: Target, examples: dict[str, Plan]
) -> None:
    with pytest.raises(ValueRefusedError, match="the plan has neither"):
        render(examples[name], target)


@each_made
def test_every_path_behind_a_value_is_explained(
    name: str, target: Target, examples: dict[str, Plan], example_data: dict[str, Any]
) -> None:
    said = [words for text in texts(examples[name], target).values() for words in COMMENT.findall(text)]
    paths = {path for words in said for path in PATH.findall(words)}
    assert len(paths) >= 2
    for path in paths:
        assert explain(example_data[name], path).lines, path


@each_made
def test_every_file_is_read_by_its_language(name: str, target: Target, examples: dict[str, Plan]) -> None:
    files = texts(examples[name], target)
    assert files
    for path, text in files.items():
        parsed(path, text)


@each_made
def test_files_stay_as_they_were(
    name: str, target: Target, examples: dict[str, Plan], request: pytest.FixtureRequest
) -> None:
    shell = texts(examples[name], "shell") if target != "shell" else {}  # kept once
    files = texts(examples[name], target)
    files = {path: masked(text) for path, text in files.items() if shell.get(path) != text}
    folder = GOLDEN / name / target
    if request.config.getoption("--golden", default=False):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for path, text in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text, "utf-8")
    found = [each for each in folder.rglob("*") if each.is_file()]
    kept = {each.relative_to(folder).as_posix(): each.read_text("utf-8") for each in found}
    assert files == kept, "files changed: read the difference, then `make golden`"


def masked(text: str) -> str:
    """The digest of a plan changes with every price."""
    return re.sub(r"sha256 [0-9a-f]{16}", "sha256 …", text)


def parsed(path: str, text: str) -> Any:
    """What a file says. Raises what its language raises."""
    match path.rpartition(".")[2]:
        case "sh" | "sbatch":
            return subprocess.run(["bash", "-n"], input=text.encode(), check=True, capture_output=True)
        case "yaml":
            return documents(text)
        case "py":
            return compile(text, path, "exec")
        case "toml":
            return tomllib.loads(text)
        case "json":
            return json.loads(text)
        case "pbtxt":
            return text_format.read(text)
    raise AssertionError(path)


def test_what_is_there_and_equal_is_left_alone(tmp_path: Path, examples: dict[str, Plan]) -> None:
    first = render(examples["assistant"], "shell", tmp_path)
    paths = [tmp_path / each.path for each in first.files]
    assert all(os.access(path, os.X_OK) for path in paths)
    assert sorted(tmp_path.iterdir()) == sorted([*paths, tmp_path / MANIFEST])
    before = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert render(examples["assistant"], "shell", tmp_path).files == first.files
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("manifest", ["kept", "lost", "broken"])
def test_what_people_changed_or_wrote_is_named_and_kept(
    manifest: str, tmp_path: Path, examples: dict[str, Plan]
) -> None:
    first = render(examples["assistant"], "shell", tmp_path)
    changed, other, *rest = [tmp_path / each.path for each in first.files]
    if manifest == "kept":
        digests = json.loads((tmp_path / MANIFEST).read_text("utf-8"))
        del digests["files"][other.name]
        (tmp_path / MANIFEST).write_text(json.dumps(digests), "utf-8")
    else:
        (tmp_path / MANIFEST).unlink()
    if manifest == "broken":
        (tmp_path / MANIFEST).write_text("[]", "utf-8")
    for path in (changed, other):
        path.write_text("mine", "utf-8")
    rest[0].unlink()
    with pytest.raises(FileError) as error:
        render(examples["assistant"], "shell", tmp_path)
    assert error.value.exit_code == 2 and "--force" in error.value.hint
    assert all(f"`{path}`" in error.value.message for path in (changed, other))
    assert ("changed since" in error.value.message) == (manifest == "kept")
    assert "did not write" in error.value.message
    assert not rest[0].exists() and changed.read_text("utf-8") == other.read_text("utf-8") == "mine"
    render(examples["assistant"], "shell", tmp_path, force=True)
    for each in first.files:
        assert (tmp_path / each.path).read_text("utf-8") == each.text
    render(examples["assistant"], "shell", tmp_path)  # known again


def test_files_of_an_older_plan_are_replaced(tmp_path: Path, examples: dict[str, Plan]) -> None:
    plan = examples["finetune"]
    render(plan, "shell", tmp_path)
    render(plan, "slurm", tmp_path)  # another target beside it: the first one stays known
    newer = replace(plan, digests=replace(plan.digests, spec="0" * 64))
    made = render(newer, "shell", tmp_path)
    assert made.files != render(plan, "shell").files
    for each in made.files:
        assert (tmp_path / each.path).read_text("utf-8") == each.text


def test_a_plan_its_data_and_its_file_give_the_same_files(tmp_path: Path, examples: dict[str, Plan]) -> None:
    plan = examples["finetune"]
    saved = tmp_path / "plan.json"
    saved.write_text(json.dumps(to_data(plan)), "utf-8")
    assert render(saved).files == render(plan).files


def test_a_stale_plan_is_rendered_as_it_stands_and_says_so(tmp_path: Path, examples: dict[str, Plan]) -> None:
    plan = examples["laptop"]
    file = tmp_path / "plan.json"
    old = replace(plan, digests=replace(plan.digests, catalog="0" * 64))
    file.write_text(plan_to_json(old), "utf-8")
    assert "made with another catalogue" in render(file).lines[0]
    written = render(file, out=tmp_path / "files")
    assert "made with another catalogue" in " ".join(" ".join(written.lines).split())
    file.write_text(plan_to_json(plan), "utf-8")
    assert render(file).notes == ()


def test_a_plan_of_100_mb_is_refused_before_it_is_read(tmp_path: Path, examples: dict[str, Plan]) -> None:
    file = tmp_path / "plan.json"
    file.write_text(plan_to_json(examples["laptop"]), "utf-8")
    with file.open("r+b") as handle:
        handle.truncate(100_000_000)  # a hole: nothing is written
    with pytest.raises(FileError, match="has 100 MB"):
        render(file)


def test_a_plan_that_is_not_there_is_to_be_planned_and_a_spec_to_be_begun(tmp_path: Path) -> None:
    for name, says in (("plan.json", "`twofold plan SPEC --out "), ("twofold.yaml", "`twofold init`")):
        with pytest.raises(FileError) as caught:
            render(tmp_path / name)
        assert caught.value.hint.startswith(says)


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path, examples: dict[str, Plan]) -> None:
    (tmp_path / "file").write_text("", "utf-8")
    with pytest.raises(FileError, match="cannot write"):
        render(examples["finetune"], "shell", tmp_path / "file" / "folder")
    with pytest.raises(FileError, match="cannot write"):
        render(examples["finetune"], "shell", tmp_path / "file")


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is closed to root")
def test_a_folder_that_is_closed_is_said(tmp_path: Path, examples: dict[str, Plan]) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(FileError, match="cannot write"):
        render(examples["finetune"], "shell", tmp_path)
    assert not list(tmp_path.iterdir())


def test_two_parts_with_one_name_are_refused(examples: dict[str, Plan]) -> None:
    plan = examples["finetune"]
    run, service = replace(plan.training[0], name="Same"), replace(plan.serving[0], name="same")
    with pytest.raises(ValueRefusedError, match="two parts of the plan become `finetune-same`"):
        render(replace(plan, training=(run,), serving=(service,)))


NAMED = st.one_of(
    st.text(min_size=1, max_size=70),
    st.sampled_from(
        ["$(id)", "`id`", "a: b", "- x", "#c", "'", "a\nid", "a\u2028b", "\\", "%s", "{{x}}", "&a"]
    ),
    st.sampled_from(
        ["${HOME}", "a'b", "x" * 80, "..", "/etc/passwd", "ünïcode", "null", "no", "1e3", "!!python"]
    ),
)


@each_target
@given(name=NAMED, service=NAMED, model=NAMED, pool=NAMED)
@example(name="a\nrm -rf /", service="s", model="m", pool="p")
@example(name="a", service="s", model='"$(touch x)"', pool="p")
@example(name="a", service="s", model="m'; id; '", pool="$(id) # x")
def test_no_name_escapes(
    target: Target, name: str, service: str, model: str, pool: str, plan_of: Callable[..., Plan]
) -> None:
    plan = plan_of(name, service, model, pool)
    try:
        files = texts(plan, target)
    except TwofoldError as error:
        assert error.exit_code == 2
        return
    for path, text in files.items():
        assert FILE.fullmatch(path)
        parsed(path, text)
    if target == "triton":  # clients name the folder, which is a label
        return
    said = [words for text in files.values() for words in served_names(text)]
    assert said
    assert set(said) == {model}


def served_names(text: str) -> Iterator[str]:
    """What the engine is told that the model is called, as who starts it reads it."""
    if text.startswith("#!"):
        for line in text.splitlines():
            if line.strip().startswith("--served-model-name"):
                yield shlex.split(line, comments=True)[1]
    elif "services:" in text:
        for each in YAML(typ="safe").load(text)["services"].values():
            words = each["command"]
            yield words[words.index("--served-model-name") + 1].replace("$$", "$")
    elif "kind: Deployment" in text:
        words = documents(text)[0]["spec"]["template"]["spec"]["containers"][0]["args"]
        yield words[words.index("--served-model-name") + 1].replace("$$(", "$(")
    elif "applications:" in text:
        config = documents(text)[0]
        config = documents(config["spec"]["serveConfigV2"])[0] if "spec" in config else config
        yield config["applications"][0]["args"]["llm_configs"][0]["model_loading_config"]["model_id"]


@each_target
@given(name=NAMED, run=NAMED, model=NAMED, framework=st.sampled_from([*TRAINERS]))
@example(name="a", run="r", model="m'; id; '", framework="deepspeed")
@example(name="a", run="$(id)", model="a\u2028b", framework="torchtitan")
def test_no_name_of_a_run_escapes(
    target: Target, name: str, run: str, model: str, framework: str, examples: dict[str, Plan]
) -> None:
    """Scripts are read by `bash -n`; YAML, TOML and JSON by theirs."""
    plan = examples["finetune"]
    changed = replace(plan.training[0], name=run, model=model, framework=framework)
    described = replace(load_catalog().model("llama-3.1-8b"), name=model)
    try:
        files = texts(replace(plan, name=name, training=(changed,), serving=(), models=(described,)), target)
    except TwofoldError as error:
        assert error.exit_code == 2
        return
    for path, text in files.items():
        assert FILE.fullmatch(path)
        parsed(path, text)
        assert len(path) <= 80


@pytest.fixture(scope="module")
def plan_of(examples: dict[str, Plan]) -> Callable[..., Plan]:
    """A saved plan whose names somebody has changed; it carries its model."""

    def made(name: str, service: str, model: str, pool: str) -> Plan:
        plan = examples["finetune"]
        serving = plan.serving[0]
        pools = tuple(replace(each, name=pool, model=model) for each in serving.pools)
        serving = replace(serving, name=service, model=model, pools=pools)
        described = replace(plan.models[0], name=model) if plan.models else model_row(model)
        return replace(plan, name=name, serving=(serving,), training=(), models=(described,))

    def model_row(model: str) -> Any:
        return replace(load_catalog().model("llama-3.1-8b"), name=model)

    return made


def test_a_file_that_is_no_text_is_replaced_and_a_script_made_to_run(
    examples: dict[str, Plan], tmp_path: Path
) -> None:
    plan: Any = examples["laptop"]
    made = render(plan, "shell", tmp_path)
    script = tmp_path / next(each.path for each in made.files if each.executable)
    script.write_bytes(b"\xff")
    script.chmod(0o644)
    render(plan, "shell", tmp_path, force=True)
    assert script.read_text().startswith("#!") and os.access(script, os.X_OK)
    script.chmod(0o644)
    render(plan, "shell", tmp_path)
    assert os.access(script, os.X_OK)


def test_a_line_end_in_a_saved_plan_becomes_no_line_of_a_file(examples: dict[str, Plan]) -> None:
    """A provider `X\\nEVIL: 1` was a key of SkyPilot's task."""

    def bent(half: Any) -> Any:
        price = half.machine.price
        if price:
            price = replace(price, provider="X\nEVIL: 1", term="t\nEVIL: 1")
        return replace(
            half, machine=replace(half.machine, price=price, base_price=price, fabric="f\nEVIL: 1")
        )

    for name in ("assistant", "portfolio"):
        plan = examples[name]
        evil: Any = replace(plan, training=(*map(bent, plan.training),), serving=(*map(bent, plan.serving),))
        for target in get_args(Target):
            if (name, target) in REFUSED:
                continue
            for file in render(evil, target).files:
                assert not re.search(r"^EVIL", file.text, re.M), (target, file.path)


@pytest.mark.parametrize(
    "target", [each for each in get_args(Target) if each not in ("compose", "triton")]
)  # these train nothing
def test_a_half_that_nothing_meets_is_lost_and_the_rest_is_written(target: Target, tmp_path: Path) -> None:
    with pytest.raises(InfeasibleError) as error:
        render(ONE_HALF, target, out=tmp_path)
    assert error.value.whose == "serve" and isinstance(error.value.left, Rendered)
    planned = [each.text for each in error.value.left.files if "By the plan of" in each.text]
    assert planned and all(
        "# lost: serve, which nothing meets: no machine serves" in text for text in planned
    )
    written = {path.name for path in tmp_path.iterdir()}
    assert written == {MANIFEST, *(each.path for each in error.value.left.files)}


def test_the_page_of_a_half_is_written(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    with pytest.raises(InfeasibleError) as error:
        write_page(ONE_HALF, page)
    assert error.value.left is not None and "Nothing meets serve" in page.read_text("utf-8")
