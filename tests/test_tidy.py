"""Sizes, names and leftovers that a reviewer should not have to look for (STYLE S2, S10, S19)."""

import ast
import re
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "twofold"
MODULES = sorted(SOURCE.rglob("*.py"))

MAX_FUNCTION_LINES = 70
MAX_FILE_LINES = 600
# file or file:function -> why it may be longer; an entry that is no longer needed fails.
EXEMPT: dict[str, str] = {}

UNIT_ROOMS = (
    "perf", "policy", "training", "inference", "answer", "rehearse", "portfolio", "money",
    "building", "planner",
)  # fmt: skip
# A unit, a dimensionless kind of number, or one of the field's own counts (S10, S19).
UNIT = re.compile(
    r"(^|_)(s|seconds|h|nats|day|days|week|months|years|m|kg|l|g|tb|bytes|tokens|flops|usd|w|j|wh|kwh|gco2|litres|bits"
    r"|fraction|ratio|factor|gain|spread|sigma|exponent|efficiency|share|score|p\d\d|low|lower|middle|median|high|upper|value|values|mean|mfu"
    r"|count|units|started|state|input|sequences|concurrency|batch|steps|rows|weights|users|ranks|queries|inside|domains"
    r"|layers|heads|dim|dims|hidden|matrices|experts|groups|topk|vocab|rank|window|k|nope|rope|tp|pp|ep|dp|cp)(_|$)"
)


def functions(path: Path) -> list[tuple[str, int]]:
    tree = ast.parse(path.read_text("utf-8"))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return [(n.name, (n.end_lineno or 0) - n.lineno + 1) for n in ast.walk(tree) if isinstance(n, kinds)]


def test_functions_and_files_stay_readable() -> None:
    too_long = {}
    for path in MODULES:
        name = str(path.relative_to(SOURCE))
        lines = len(path.read_text("utf-8").splitlines())
        if lines > MAX_FILE_LINES:
            too_long[name] = lines
        too_long |= {f"{name}:{f}": size for f, size in functions(path) if size > MAX_FUNCTION_LINES}
    assert {k: v for k, v in too_long.items() if k not in EXEMPT} == {}
    assert set(EXEMPT) <= set(too_long), "stale exemption"


def test_what_tests_skip_until_make_extras_is_what_it_installs() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    locked = re.findall(r"^([\w.-]+)==", (ROOT / "requirements-live.lock").read_text("utf-8"), re.M)
    asked = re.compile(r"needs the extras? ([^`\n]*): `make extras`")
    reasons = (
        found for path in (ROOT / "tests").rglob("*.py") for found in asked.findall(path.read_text("utf-8"))
    )
    named = {extra for reason in reasons for extra in re.findall(r"\[(\w+)\]", reason)}
    assert {"train", "live", "data"} <= named
    wanted = {re.split(r"[^\w.-]", each)[0].lower() for extra in named for each in extras[extra]}
    assert wanted - set(locked) == set()


def test_the_checker_of_types_finds_the_same_with_and_without_the_extras() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    project = settings["project"]
    installed = (*project["dependencies"], *project["optional-dependencies"]["dev"])
    found = {re.split(r"[^\w-]", each)[0].replace("-", "_") for each in installed} | {"pydantic_core"}
    found |= {*sys.stdlib_module_names, "twofold", "fits"}
    skipped = tuple(each.rstrip("*") for each in settings["tool"]["mypy"]["overrides"][0]["module"])
    trees = (ast.parse(path.read_text("utf-8")) for path in (*MODULES, *(ROOT / "fits").rglob("*.py")))
    nodes = [node for tree in trees for node in ast.walk(tree)]
    imported = {each.name for node in nodes if isinstance(node, ast.Import) for each in node.names}
    imported |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom) and not node.level}
    assert {
        name for name in imported if name.split(".")[0] not in found and not f"{name}.".startswith(skipped)
    } == set()


def test_no_file_is_named_after_nothing() -> None:
    assert not [p for p in MODULES if p.stem in {"utils", "util", "helpers", "common", "misc"}]


# Programs that rendered lines start, or that sources of a formula are in.
PROGRAMS = {
    "on_nodes.py",
    "pretrain_gpt.py",
    "run_recipe.py",
    "run_clm.py",
    "arguments.py",
    "job_config.py",
    "config_args.py",
    "model.py",  # of TensorRT-LLM, as the next
    "helpers.py",
}


def test_files_that_sources_name_are_there() -> None:
    there = [path for folder in ("src", "tests", "bench", "fits") for path in (ROOT / folder).rglob("*.py")]
    known = PROGRAMS | {path.name for path in there} | {str(path.relative_to(ROOT)) for path in there}
    named = re.compile(r"(?:(?:tests|bench|fits)/[\w/]*)?\b[a-z_0-9]+\.py\b")
    found = [
        f"{path.relative_to(SOURCE)}:{number} {name}"
        for path in MODULES
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        for name in named.findall(line)
        if name not in known
    ]
    assert not found


def test_tests_that_the_makefile_names_are_there() -> None:
    text = (ROOT / "Makefile").read_text("utf-8")
    listed = re.findall(r"\$\(addprefix tests/,([^)]*)\)", text)
    names = [f"tests/{name}" for group in listed for name in group.split()]
    names += re.findall(r"(?<![\w/])tests/[\w/]+(?:\.py)?", text.replace("addprefix tests/", ""))
    assert len(names) > 10 and not [name for name in names if not (ROOT / name).exists()]


def test_nothing_is_left_open_or_swallowed() -> None:
    left = re.compile(r"\b(TODO|FIXME|XXX|NotImplementedError)\b|except:\s*$|from \w[\w.]* import \*")
    found = [
        f"{path.relative_to(SOURCE)}:{number}"
        for path in MODULES
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if left.search(line)
    ]
    assert found == []


def test_nothing_prints_or_exits_below_the_faces() -> None:
    for path in MODULES:
        if path.relative_to(SOURCE).parts[0] in {"cli", "measure", "device", "__main__.py"}:
            continue
        names = {
            node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
            for node in ast.walk(ast.parse(path.read_text("utf-8")))
            if isinstance(node, ast.Call)
        }
        in_main = "__main__" in path.read_text("utf-8")  # a generator of a checked-in page
        assert in_main or not names & {"print", "exit", "breakpoint"}, path


@pytest.mark.parametrize("room", UNIT_ROOMS)
def test_float_fields_carry_their_unit(room: str) -> None:
    bare = [
        f"{path.name}:{field.lineno} {field.target.id}"
        for path in (SOURCE / room).rglob("*.py")
        for owner in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(owner, ast.ClassDef)
        for field in owner.body
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and ast.unparse(field.annotation) in {"float", "Floats", "float | None"}
        and not UNIT.search(field.target.id)
    ]
    assert bare == []


def test_no_machine_path_or_host_is_committed() -> None:
    words = re.compile(r"/(root|home/\w+|work|tmp/\w+)/|pypi\.org|files\.pythonhosted")
    kinds = {".py", ".md", ".toml", ".csv", ".lock", ".yaml", ".yml", ""}
    found = []
    for path in ROOT.rglob("*"):
        parts = path.relative_to(ROOT).parts
        if (parts[0].startswith(".") and parts[0] != ".ci") or not path.is_file() or path.suffix not in kinds:
            continue
        if path != Path(__file__) and "__pycache__" not in parts:
            for number, line in enumerate(path.read_text("utf-8", "replace").splitlines(), 1):
                if words.search(line):
                    found.append(f"{path.relative_to(ROOT)}:{number}")
    assert found == []


def test_every_invariant_is_cited_by_a_test() -> None:
    numbered = re.findall(r"^\| (INV-\d+) \|", (ROOT / "docs" / "invariants.md").read_text("utf-8"), re.M)
    tests = "\n".join(path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    assert [number for number in numbered if not re.search(rf"{number}\b", tests)] == []
