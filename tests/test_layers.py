"""Holds the map of docs/architecture.md: imports point down, rooms have one door, `--help` stays light."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "twofold"

FLOORS = {
    "core": 0,
    "catalog": 1,
    "contracts": 1,
    "perf": 2,
    "policy": 2,
    "training": 3,
    "inference": 3,
    "twin": 4,
    "supply": 4,
    "facility": 4,
    "plan": 5,
    "measure": 5,
    "claims": 6,
    "live": 7,
    "app": 8,
    "cli": 9,
}
PURE_ROOMS = ("perf", "policy", "training", "inference", "twin", "facility")
BANNED_IN_PURE = {
    "asyncio",
    "datetime",
    "logging",
    "os",
    "random",
    "socket",
    "subprocess",
    "threading",
    "time",
}
# `perf` alone may read a file: its own table of constants, in one module.
READS_ITS_TABLE = {"perf/constants.py"}
MODULES = sorted(SOURCE.rglob("*.py"))


def imports_of(path: Path) -> list[str]:
    """Every imported module name in a file, those inside functions and under TYPE_CHECKING too."""
    names = []
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            if node.module == "twofold":
                names += [f"twofold.{alias.name}" for alias in node.names]
            elif node.module:
                names.append(node.module)
    return names


def room_of(path: Path) -> str:
    parts = path.relative_to(SOURCE).parts
    return parts[0] if len(parts) > 1 else ""


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_down_and_enter_by_the_door(path: Path) -> None:
    room = room_of(path)
    if not room:  # the package's own door re-exports app, lazily
        return
    for name in imports_of(path):
        if not name.startswith("twofold."):
            continue
        target = name.split(".")[1]
        if target not in FLOORS:  # a name of the package itself, such as __version__
            continue
        assert target == room or FLOORS[target] < FLOORS[room], f"{room} may not import {name}"
        assert target == room or name.count(".") == 1, f"{name}: enter {target} by its door"


@pytest.mark.parametrize("room", PURE_ROOMS)
def test_models_have_no_clock_file_or_thread(room: str) -> None:
    for path in (SOURCE / room).rglob("*.py"):
        banned = {name.split(".")[0] for name in imports_of(path)} & BANNED_IN_PURE
        assert not banned, f"{path}: {banned}"
        if f"{room}/{path.name}" not in READS_ITS_TABLE:
            calls = {
                node.func.id
                for node in ast.walk(ast.parse(path.read_text("utf-8")))
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
            }
            assert "open" not in calls, path


def test_live_reads_contracts_and_never_plans() -> None:
    for path in (SOURCE / "live").rglob("*.py"):
        names = imports_of(path)
        assert not [name for name in names if name.startswith(("twofold.plan", "twofold.twin"))], path


def test_every_room_is_on_the_map_and_every_floor_has_a_room() -> None:
    rooms = {room_of(path) for path in MODULES} - {""}
    assert rooms == set(FLOORS)


def test_the_map_in_the_docs_is_this_map() -> None:
    text = (SOURCE.parents[1] / "docs" / "architecture.md").read_text("utf-8")
    for room, floor in FLOORS.items():
        assert f"| {floor} | `{room}` |" in text, room


@pytest.mark.parametrize("room", sorted(FLOORS))
def test_a_door_lists_what_it_opens_to(room: str) -> None:
    tree = ast.parse((SOURCE / room / "__init__.py").read_text("utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            names = ast.literal_eval(node.value)  # ruff keeps the list sorted
            assert len(names) == len(set(names)) > 0
            return
    pytest.fail(f"{room} has no __all__")


def test_help_loads_neither_numpy_nor_pydantic() -> None:
    program = (
        "import sys; from twofold.cli import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "heavy = {'numpy', 'pydantic', 'ruamel', 'scipy'} & set(sys.modules)\n"
        "sys.stderr.write(','.join(sorted(heavy)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr == ""
