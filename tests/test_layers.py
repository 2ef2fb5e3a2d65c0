"""Holds the map of docs/architecture.md: imports point down, rooms give few names, `--help` stays light."""

import ast
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "twofold"

FLOORS = {
    "core": 0,
    "catalog": 1,
    "contracts": 1,
    "contracts.rows": 2,
    "contracts.results": 2,
    "contracts.spec": 3,
    "perf": 2,
    "policy": 2,
    "policy.gate": 3,
    "policy.release": 4,
    "policy.cluster": 4,
    "training": 5,
    "inference": 5,
    "twin": 5,
    "gating": 6,
    "twin.serving": 6,
    "twin.cluster": 7,
    "answer": 8,
    "measure": 9,
    "device": 10,
    "verdicts": 11,
    "rehearse": 9,
    "building": 9,
    "portfolio": 10,
    "money": 11,
    "planner": 12,
    "live": 12,
    "live.training": 13,
    "live.gateway": 13,
    "live.loads": 14,
    "live.control": 14,
    "live.jobs": 14,
    "live.registry": 14,
    "charts": 3,
    "report": 15,
    "rendering": 15,
    "pages": 16,
    "app": 17,
    "cli": 18,
}
PURE_ROOMS = ("perf", "policy", "training", "inference", "twin", "building")
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
    return ".".join(path.relative_to(SOURCE).parts[:-1])


def target_of(name: str) -> str:
    """The room that an import enters: the longest one that its name begins with."""
    words = name.split(".")[1:]
    rooms = (".".join(words[:count]) for count in range(len(words), 0, -1))
    return next((room for room in rooms if room in FLOORS), "")


NAMES_MOST, NAMES_OF_A_ROOM_MOST = 960, 82
# A name is taken from the module that defines it; these modules are closed vocabularies, taken as a whole.
VOCABULARIES = {
    "contracts.results": {
        *("compliance", "courses", "holdings", "ledger", "loop", "premises", "proof"),
        *("served", "serving", "simulated", "sweeps", "trained", "training"),
    },
    "contracts.rows": {"calibrations"},
    "answer": {"derive", "loads", "measured_serving", "quick_single", "paths", "uncertainty"},
    "core": {"errors", "extras", "nvidia", "record"},
    "perf": {"collectives", "loss_law", "operators"},
    "inference": {"regimes", "stations"},
    "live": {"metrics_text", "processes", "watchdog", "watched"},
    "live.registry": {"evaluate_worker", "sample_worker", "task_sets"},
    "live.training": {"rerun", "variants"},
    "live.gateway": {"line_file"},
    "live.loads": {"loader", "loads", "measured_loads"},
    "live.control": {"moving", "reconcile", "trials"},
    "measure": {"proof_goals", "results"},
    "rehearse": {"as_measured", "step_fit"},
    "report": {"proof"},
    "policy.gate": {"events", "settings", "tiers"},
    "policy.release": {"quality"},
    "policy.cluster": {"events", "settings"},
    "live.jobs": {"campaigns", "orders"},
    "twin.serving": {"fault_types", "fleet_types"},
    "twin.cluster": {"cluster_types"},
}


def taken_of(path: Path) -> list[tuple[str, str, str]]:
    """What a file takes of other rooms: the room, the module, and the name, empty for a whole module."""
    taken = []
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("twofold."):
            module = (node.module or "").removeprefix("twofold.")
            if (room := target_of(node.module or "")) == room_of(path):
                continue
            names = [alias.name for alias in node.names]
            taken += [
                (room, f"{room}.{name}", "") if module == room else (room, module, name) for name in names
            ]
    return taken


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_down(path: Path) -> None:
    room = room_of(path)
    if not room:  # the package's own door re-exports app, lazily
        return
    for name in imports_of(path):
        target = target_of(name) if name.startswith("twofold.") else ""
        assert not target or target == room or FLOORS[target] < FLOORS[room], f"{room} may not import {name}"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_names_are_taken_from_what_defines_them_and_what_is_private_stays(path: Path) -> None:
    """So that an import says where a name stands, and what a module imports is never imported from it."""
    for room, module, name in taken_of(path):
        if not name:
            assert module == "cli.main" or module.rpartition(".")[2] in VOCABULARIES.get(room, ()), module
            continue
        assert not name.startswith("_"), f"{module}.{name}"
        defined = ast.parse((SOURCE / f"{module.replace('.', '/')}.py").read_text("utf-8")).body
        bound = {
            each.id if isinstance(each, ast.Name) else getattr(each, "name", "")
            for node in defined
            if not isinstance(node, ast.Import | ast.ImportFrom)
            for each in (node, *ast.walk(node))
        }
        assert name in bound, f"{module} does not define {name}"


def test_rooms_give_few_names_to_others() -> None:
    """The surface of the house: what one room may not change without looking into another."""
    given = {
        (room, module, name) for path in MODULES if room_of(path) for room, module, name in taken_of(path)
    }
    assert len(given) <= NAMES_MOST
    by_room = Counter(room for room, _, _ in given)
    assert max(by_room.values()) <= NAMES_OF_A_ROOM_MOST, by_room.most_common(3)


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


# What machines, software and replicas are made by, and steps, memory and loads priced by, below `answer`.
MODEL_ROOMS = {"perf", "training", "inference"}
MADE_BELOW = {"Cluster", "Stack", "Engine", "Replica"}
ASKED_BELOW = {"network", "load_stack", "engine", "step_time", "memory", "price_layouts", "iteration_s"}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_only_answer_makes_machines_and_software_and_asks_the_models_of_them(path: Path) -> None:
    """Whoever else asks takes them from `answer`, so that one question never has two pipelines again."""
    if room_of(path) in MODEL_ROOMS | {"answer"}:
        return
    tree = ast.parse(path.read_text("utf-8"))
    taken = {
        alias.asname or alias.name: alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and target_of(node.module or "") in MODEL_ROOMS
        for alias in node.names
    }
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    made = {taken.get(call.id, "") for call in calls if isinstance(call, ast.Name)} & MADE_BELOW
    formulas = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "regimes" and node.attr.islower()
    }
    assert not made | {*taken.values()} & ASKED_BELOW | formulas


def test_live_reads_contracts_and_never_plans() -> None:
    for path in (SOURCE / "live").rglob("*.py"):
        rooms = {target_of(name) for name in imports_of(path) if name.startswith("twofold.")} - {""}
        others = {room for room in rooms if not room.startswith("live")}
        assert not {room for room in others if room.startswith("twin") or FLOORS[room] >= FLOORS["answer"]}, (
            path
        )


def test_the_product_never_imports_the_tools_of_its_developers() -> None:
    for path in MODULES:
        assert not {name.partition(".")[0] for name in imports_of(path)} & {"bench", "fits", "tests"}, path


def test_every_room_is_on_the_map_and_every_floor_has_a_room() -> None:
    rooms = {room_of(path) for path in MODULES} - {""}
    assert rooms == set(FLOORS)


def test_the_map_in_the_docs_is_this_map() -> None:
    text = (SOURCE.parents[1] / "docs" / "architecture.md").read_text("utf-8")
    for room, floor in FLOORS.items():
        assert f"| {floor} | `{room}` |" in text, room


def test_the_places_that_a_newcomer_is_sent_to_are_there() -> None:
    page = (SOURCE.parents[1] / "docs" / "changing.md").read_text("utf-8")
    places = re.findall(r"`([\w/]+\.(?:py|csv|pyi|json))(?::(\w+))?`", page)
    assert len(places) > 30
    for file, name in places:
        path = SOURCE / file if (SOURCE / file).exists() else SOURCE.parents[1] / file
        text = path.read_text("utf-8")
        assert not name or re.search(rf"^(def |class )?{name}\b", text, re.M), f"{file}:{name}"


def test_only_workers_and_the_gateway_need_more_than_the_core_when_imported() -> None:
    """What an extra brings is imported where it is used, so that every verb runs without it or names it."""
    known = sys.stdlib_module_names | {
        "twofold", "click", "highspy", "lazy_loader", "numpy", "pydantic", "pydantic_core", "ruamel",
    }  # fmt: skip
    needy = set()
    for path in MODULES:
        for node in ast.parse(path.read_text("utf-8")).body:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            if {name.split(".")[0] for name in names} - known:
                needy.add(path.name)
    gateways = {"attempts.py", "http_bounds.py", "upstream.py"}
    controllers = {"observed.py", "engine_checks.py"}
    # Imported by those who asked first: programs of their own, and what trains.
    workers = {"accumulation.py", "asked.py", "batches.py", "digesting.py", "exporting.py", "loss_scale.py"}
    workers |= {"safe_reading.py", "saving.py", "train_model.py", "train_worker.py"}
    assert needy == gateways | controllers | workers | {"admin_session.py"}


def test_help_loads_neither_numpy_nor_pydantic() -> None:
    program = (
        "import sys; from twofold.cli import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "heavy = {'numpy', 'pydantic', 'ruamel', 'scipy'} & set(sys.modules)\n"
        "sys.stderr.write(','.join(sorted(heavy)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr == ""


# What `plan` loads of the rooms; the twin and its scenarios only where something is rehearsed.
ROOMS_OF_A_PLAN = {
    *("core", "catalog", "contracts", "contracts.results", "contracts.rows", "contracts.spec", "perf"),
    *("training", "inference", "answer", "portfolio", "money", "building", "planner"),
    *("report", "app", "cli"),
}
# Formulas that plans share, and what Python returns of one.
LIGHT_MODULES_OF_A_PLAN = {"policy.cluster.cadence", "twin.serving.profiles", "pages.shown_plan"}


def test_plan_loads_the_rooms_that_it_uses_and_no_other() -> None:
    program = (
        "import sys; from twofold.cli import main\n"
        "main(['plan', 'examples/assistant'])\n"
        "sys.stderr.write(' '.join(name for name in sys.modules))"
    )
    root = SOURCE.parents[1]
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=root
    )
    loaded = set(done.stderr.split())
    assert not loaded & {"scipy", "multiprocessing", "concurrent.futures", "asyncio", "torch", "pandas"}
    modules = {name.removeprefix("twofold.") for name in loaded if name.startswith("twofold.")}
    of_a_scenario = {name for name in modules if name.startswith("contracts.spec.scenario")}
    # A spec may name policies of a gate, by the models that a scenario does.
    assert of_a_scenario <= {"contracts.spec.scenario_parts", "contracts.spec.scenario_policies"}
    of_code = {name for name in modules if not (SOURCE / name.replace(".", "/")).is_dir()}
    rooms = {name.rpartition(".")[0] for name in of_code - LIGHT_MODULES_OF_A_PLAN} - {""}
    assert rooms == ROOMS_OF_A_PLAN
