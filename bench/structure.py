"""The measures of the house: how much there is, how it hangs together, and what is written twice.

    python -m bench.structure [--pairs] [--start]

Definitions, which give what a review counted before the rooms were moved (61 modules, 1 circle, 153 pairs):

- A line is any line of a .py file in src/; fits/ is counted apart.
- A room gives the names that modules of other rooms import from it, and the functions that the table of verbs
  names. A module that is imported as a whole, as closed vocabularies are, is one name. What the package
  itself opens to does not count.
- A chain is the longest way from import to import, those in functions, under TYPE_CHECKING and from the table
  of verbs too. A name that is taken from a package's `__init__.py` or stub would be an import of all that it
  opens to: with such doors to every room the chain had 61 to 65 modules. `twofold` itself, which every module
  stands in, counts once, and what is imported from it makes no way. A circle is a set of modules that import
  each other, by any way; all of it counts in a chain.
- Two classes of module level are a pair where four or more annotated fields have the same name, and those are
  60 % of the fewer fields. Inherited fields do not count.
- A function is any `def`; a public one has no leading underscore. A private helper is one of module level
  with an underscore, used once where its file names it once more.
"""

import argparse
import ast
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import combinations
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
PACKAGE = "twofold"
SHARED_LEAST = 4
SHARED_FRACTION = 0.6
SHORT_LINES = 7
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
LABEL_WIDTH, VALUE_WIDTH, WIDTH = 34, 18, 100
Graph = dict[str, set[str]]


@dataclass(frozen=True)
class Module:
    """A file, by the name under which it is imported."""

    name: str
    path: Path

    @cached_property
    def text(self) -> str:
        return self.path.read_text("utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"

    @property
    def doorway(self) -> ast.Module:
        """What says which names a package opens to."""
        stub = self.path.with_suffix(".pyi")
        return ast.parse(stub.read_text("utf-8")) if stub.exists() else self.tree

    @cached_property
    def imports(self) -> list[tuple[str, str]]:
        """Every module that is imported, with the name that is taken from it, or with none."""
        found = []
        for node in [*ast.walk(self.tree), *ast.walk(self.doorway)]:
            if isinstance(node, ast.Import):
                found += [(alias.name, "") for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                parts = self.name.split(".")
                up = len(parts) - node.level + self.is_package
                base = [".".join(parts[:up])] if node.level else []
                module = ".".join([*base, *([node.module] if node.module else [])])
                found += [(module, alias.name) for alias in node.names]
        return found


@dataclass(frozen=True, slots=True)
class Pair:
    """Two classes that say the same with fields of their own."""

    shared: int
    fewer: int
    first: str
    second: str


def modules() -> dict[str, Module]:
    """All modules of the package."""
    found = {}
    for path in sorted((SOURCE / PACKAGE).rglob("*.py")):
        name = ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
        found[name] = Module(name, path)
    return found


def answers(known: dict[str, Module]) -> set[tuple[str, str]]:
    """Modules of `app` and the names in them that the table of verbs calls."""
    tables = known[f"{PACKAGE}.cli.verbs"].text + known[f"{PACKAGE}.cli.estimate"].text
    return {(f"{PACKAGE}.app.{module}", name) for module, name in re.findall(r'answer="(\w+)\.(\w+)', tables)}


def graph(known: dict[str, Module]) -> Graph:
    """Who imports whom, the package itself left out."""
    edges: Graph = {name: set() for name in known if name != PACKAGE}
    for name in edges:
        for module, taken in known[name].imports:
            target = f"{module}.{taken}" if f"{module}.{taken}" in known else module
            edges[name] |= {target} & (edges.keys() - {name})
    edges[f"{PACKAGE}.cli.running"] |= {module for module, _ in answers(known)}
    return edges


def given(known: dict[str, Module]) -> dict[str, set[tuple[str, str]]]:
    """By room, what modules of other rooms take of it: a name with its module, or a module as a whole."""
    taken = answers(known)
    for name, one in known.items():
        own = _room(name, known)
        found = {pair for pair in one.imports if pair[0] in known and PACKAGE not in (name, pair[0])}
        taken |= {pair for pair in found if _room(pair[0], known) != own}
    rooms: dict[str, set[tuple[str, str]]] = {}
    for module, name in taken:
        rooms.setdefault(_room(module, known), set()).add((module, name))
    return rooms


def _room(name: str, known: dict[str, Module]) -> str:
    """The package that a module stands in; a package stands in itself."""
    return name if known[name].is_package else name.rpartition(".")[0]


def circles(edges: Graph) -> list[set[str]]:
    """Every module with those that it imports and that import it, what is imported first."""
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    open_: list[str] = []
    found: list[set[str]] = []

    def visit(name: str) -> None:
        number[name] = lowest[name] = len(number)
        open_.append(name)
        for other in sorted(edges[name]):
            if other not in number:
                visit(other)
            if other in open_:
                lowest[name] = min(lowest[name], lowest[other])
        if lowest[name] == number[name]:
            at = open_.index(name)
            found.append(set(open_[at:]))
            del open_[at:]

    for name in sorted(edges):
        if name not in number:
            visit(name)
    return found


def chain(edges: Graph) -> tuple[int, list[set[str]]]:
    """Modules of the longest chain, with the package itself, and the circles."""
    found = circles(edges)
    length: dict[str, int] = {}
    for each in found:
        below = max((length[other] for name in each for other in edges[name] - each), default=0)
        length |= dict.fromkeys(each, len(each) + below)
    return 1 + max(length.values()), [each for each in found if len(each) > 1]


def pairs(known: Iterable[Module]) -> list[Pair]:
    """Classes that share most of their fields, those with most of them first."""
    classes = [
        (f"{one.name.removeprefix(f'{PACKAGE}.')}.{node.name}", fields)
        for one in known
        for node in one.tree.body
        if isinstance(node, ast.ClassDef) and len(fields := _fields(node)) >= SHARED_LEAST
    ]
    found = []
    for (first, left), (second, right) in combinations(classes, 2):
        shared, fewer = len(left & right), min(len(left), len(right))
        if shared >= SHARED_LEAST and shared >= SHARED_FRACTION * fewer:
            found.append(Pair(shared, fewer, first, second))
    return sorted(found, key=lambda pair: (-pair.shared, pair.fewer, pair.first, pair.second))


def _fields(node: ast.ClassDef) -> set[str]:
    annotated = [each.target for each in node.body if isinstance(each, ast.AnnAssign)]
    return {target.id for target in annotated if isinstance(target, ast.Name)}


def start() -> tuple[float, float]:
    """Seconds that a plan of an example imports for, of those that it takes, each the least of three.

    With compiled bytecode at hand, as installing leaves it: a run before those three writes it.
    """
    command = [sys.executable, "-X", "importtime", "-m", PACKAGE, "plan", "examples/assistant"]
    imports, whole = [], []
    with TemporaryDirectory() as compiled:
        environment = {**os.environ, "PYTHONPATH": str(SOURCE), "PYTHONPYCACHEPREFIX": compiled}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        ask = partial(subprocess.run, command, cwd=ROOT, env=environment, capture_output=True, text=True)
        ask(check=True)
        for _ in range(3):
            began_s = time.perf_counter()
            done = ask(check=True)
            whole.append(time.perf_counter() - began_s)
            own_us = re.findall(r"^import time:\s+(\d+) \|", done.stderr, re.M)
            imports.append(sum(map(int, own_us)) / 1e6)
    return min(imports), min(whole)


def size_rows(known: dict[str, Module]) -> list[tuple[str, str, str]]:
    """Lines, files, folders and what rooms give each other."""
    rows = [("lines in src/", f"{_lines(SOURCE):,}", "")]
    if lines := _lines(ROOT / "fits"):
        rows.append(("lines in fits/", f"{lines:,}", ""))
    rooms = {room.removeprefix(f"{PACKAGE}."): len(names) for room, names in given(known).items()}
    widest = sorted(rooms, key=lambda room: -rooms[room])[:4]
    folders = Counter(path.parent for path in SOURCE.rglob("*.py"))
    folder, most = folders.most_common(1)[0]
    return [
        *rows,
        ("files in src/", f"{folders.total():,}", f"in {len(folders):,} folders"),
        ("largest folder", f"{most:,} files", folder.relative_to(SOURCE).as_posix()),
        ("names that rooms give others", f"{sum(rooms.values()):,}", f"of {len(rooms)} rooms"),
        (
            "widest room",
            f"{rooms[widest[0]]:,} names",
            ", ".join(f"{room} {rooms[room]}" for room in widest[:4]),
        ),
    ]


def _lines(folder: Path) -> int:
    return sum(path.read_bytes().count(b"\n") for path in folder.rglob("*.py"))


def shape_rows(known: dict[str, Module]) -> list[tuple[str, str, str]]:
    """Imports and classes."""
    length, found = chain(graph(known))
    named = "; ".join(" ↔ ".join(each.rsplit(".", 1)[-1] for each in sorted(circle)) for circle in found)
    return [
        ("longest import chain", f"{length} modules", ""),
        ("import circles", str(len(found)), named),
        ("pairs of classes", str(len(pairs(known.values()))), "share 60 % of the smaller one's fields"),
    ]


def function_rows(known: dict[str, Module]) -> list[tuple[str, str, str]]:
    """Functions."""
    functions = [node for one in known.values() for node in ast.walk(one.tree) if isinstance(node, FUNCTIONS)]
    lines = sorted(_length(node) for node in functions)
    public = [node for node in functions if not node.name.startswith("_")]
    told = sum(ast.get_docstring(node) is not None for node in public)
    once = [_length(node) for one in known.values() for node in _used_once(one)]
    short = sum(length < SHORT_LINES for length in once)
    return [
        (
            "function lines: median, p90, max",
            f"{median(lines):g}, {lines[len(lines) * 9 // 10]}, {lines[-1]}",
            f"of {len(lines):,} functions",
        ),
        ("public functions with docstrings", f"{told / len(public):.0%}", f"of {len(public):,}"),
        ("private helpers used once, short", f"{short:,}", f"under seven lines, of {len(once):,} used once"),
    ]


def _length(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def _used_once(one: Module) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    words = Counter(re.findall(r"\w+", one.text))
    private = [node for node in one.tree.body if isinstance(node, FUNCTIONS) and node.name.startswith("_")]
    return [node for node in private if not node.name.startswith("__") and words[node.name] == 2]


def main(arguments: Sequence[str] = ()) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.structure")
    parser.add_argument("--pairs", action="store_true", help="list the pairs of classes, largest first")
    parser.add_argument("--start", action="store_true", help="time what a plan imports, which takes seconds")
    told = parser.parse_args(arguments)
    known = modules()
    rows = size_rows(known) + shape_rows(known) + function_rows(known)
    if told.start:
        imports_s, whole_s = start()
        rows.append(("imports of twofold plan", f"{imports_s:.2f} s", f"of {whole_s:.2f} s, so traced"))
    for label, value, note in rows:
        print(f"{label:{LABEL_WIDTH}}{value:>{VALUE_WIDTH}}  {note}"[:WIDTH].rstrip())
    for pair in pairs(known.values()) if told.pairs else ():
        print(f"{pair.shared:3} of {pair.fewer:<3} {pair.first} · {pair.second}"[:WIDTH])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
