"""Writes every room's door, `__init__.pyi`, from what other rooms use: `make doors` after a name has moved.

A door opens to names that another room imports, and no other; to a whole module where another room takes
that, which is for closed vocabularies: `from twofold.policy.cluster import events` and then
`events.StopJob`, one name instead of thirty. Imports are put right as well: names of one's own room come
from their module, names of another room from its door. A room that is imported as a whole, by
`from twofold import rehearse`, loads nothing before one of its names is used. What the package itself opens
to is listed by hand, and found in `app`; the door of `app` opens to the rest of what answers a verb. The
lists of verbs in README.md and in the package's docstring follow the table of verbs.
"""

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "twofold"
BY_HAND = {"cli"}  # its door holds code, without a stub
Doors = dict[str, dict[str, set[str]]]


def room_of(module: str) -> str:
    """The package that a dotted module below `twofold` stands in: `policy.gate` of `policy.gate.queue`."""
    path = SOURCE / module.replace(".", "/")
    return module if path.is_dir() else module.rpartition(".")[0]


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts)


@cache
def defined_in(path: Path) -> set[str]:
    """Names that a module binds at its top, imports aside."""
    names: set[str] = set()
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names |= {
                each.id for target in node.targets for each in ast.walk(target) if isinstance(each, ast.Name)
            }
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
        elif isinstance(node, ast.TypeAlias if hasattr(ast, "TypeAlias") else ()):
            names.add(node.name.id)
    return names


def homes() -> dict[str, dict[str, str]]:
    """By room, each name and the module of the room that defines it."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for path in sorted(SOURCE.rglob("*.py")):
        if path.name != "__init__.py":
            module = module_of(path)
            for name in defined_in(path):
                if not name.startswith("__"):
                    found[room_of(module)].setdefault(name, module)
    return found


def imports(tree: ast.Module) -> Iterator[ast.ImportFrom]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("twofold."):
            yield node


def names_of_rooms(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Rooms that are imported as a whole, each with a name that is used of it, in annotations as text too."""
    rooms = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "twofold"
        for alias in node.names
        if (SOURCE / alias.name).is_dir()
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in rooms:
            yield node.value.id, node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from (
                (room, name) for room in rooms for name in re.findall(rf"^{room}\.(\w+)$", node.value)
            )


def home_of(module: str, name: str, known: dict[str, dict[str, str]]) -> str:
    """The module that defines `name`, as imported from a module or a door; a stale place is searched for."""
    if (SOURCE / f"{module.replace('.', '/')}.py").exists() and name in defined_in(
        SOURCE / f"{module.replace('.', '/')}.py"
    ):
        return module
    if (
        stub := SOURCE / module.replace(".", "/") / "__init__.pyi"
    ).exists():  # what the door says now goes first
        said = re.search(rf"^from \.([\w.]+) import {name} as", stub.read_text("utf-8"), re.M)
        if said and name in known.get(module, {}):
            path = f"{module}.{said[1]}"
            file = SOURCE / f"{path.replace('.', '/')}.py"
            if file.exists() and name in defined_in(file):
                return path
    if name in known.get(room_of(module), {}):
        return known[room_of(module)][name]
    rooms = [room for room, names in known.items() if name in names]
    near = [room for room in rooms if room.partition(".")[0] == module.partition(".")[0]]
    rooms = near or rooms
    if len(rooms) != 1:
        sys.exit(f"`{name}` of twofold.{module}: defined in {rooms or 'no room'}")
    return known[rooms[0]][name]


def put_right(path: Path, known: dict[str, dict[str, str]], doors: Doors, inside: bool) -> None:
    """Imports of one file, by module where they stay in their room, else by door; doors are noted."""
    text = path.read_text("utf-8")
    lines, own = text.splitlines(keepends=True), room_of(module_of(path)) if inside else ""
    for room, name in names_of_rooms(ast.parse(text)) if inside else ():
        doors[room][home_of(room, name, known)].add(name)
    for node in sorted(imports(ast.parse(text)), key=lambda each: -each.lineno):
        groups: dict[str, list[str]] = {}
        for alias in node.names:
            module = (node.module or "").removeprefix("twofold.")
            if module in BY_HAND:
                groups.setdefault(module, []).append(ast.unparse(alias))
                continue
            is_module = (SOURCE / module.replace(".", "/") / f"{alias.name}.py").exists()
            if is_module and alias.name not in known.get(module, {}):
                if inside and module != own:
                    doors[module][""].add(alias.name)
                groups.setdefault(module, []).append(ast.unparse(alias))
                continue
            home = home_of(module, alias.name, known)
            room = room_of(home)
            if inside and room != own:
                doors[room][home].add(alias.name)
            named = (SOURCE / f"{module.replace('.', '/')}.py").exists() if not inside else room == own
            open_ = inside or alias.name in doors[room].get(home, ())
            groups.setdefault(home if named or not open_ else room, []).append(ast.unparse(alias))
        said = [ast.unparse(alias) for alias in node.names]
        if groups == {(node.module or "").removeprefix("twofold."): said}:
            continue
        indent = " " * node.col_offset
        written = "".join(f"{indent}from twofold.{m} import {', '.join(n)}\n" for m, n in groups.items())
        if written != "".join(lines[node.lineno - 1 : node.end_lineno]):
            comment = lines[(node.end_lineno or 1) - 1].partition("  #")[2]
            if comment and len(groups) == 1:
                written = written.rstrip("\n") + "  #" + comment
            lines[node.lineno - 1 : node.end_lineno] = [written]
    if (after := "".join(lines)) != text:
        path.write_text(after, "utf-8")


def names_of_the_package() -> list[str]:
    """What `twofold` itself opens to, in its stub."""
    stub = ast.parse((SOURCE / "__init__.pyi").read_text("utf-8"))
    return [alias.name for node in stub.body if isinstance(node, ast.ImportFrom) for alias in node.names]


def verbs() -> dict[str, dict[str, str]]:
    """Group, summary and answering function of every verb, by its name."""
    found: dict[str, dict[str, str]] = {}
    for name in ("verbs", "estimate"):
        tree = ast.parse((SOURCE / "cli" / f"{name}.py").read_text("utf-8"))
        tables = [node for node in ast.walk(tree) if isinstance(node, ast.Dict)]
        for key, row in (pair for table in tables for pair in zip(table.keys, table.values, strict=True)):
            if isinstance(key, ast.Constant) and isinstance(row, ast.Call):
                texts = [each for each in row.keywords if isinstance(each.value, ast.Constant)]
                found[str(key.value)] = {"group": "", "answer": ""} | {
                    each.arg or "": ast.literal_eval(each.value) for each in texts
                }
    for verb in found.values():
        verb["answer"] = verb["answer"].partition(".")[0] or "estimate"
    return found


def write_lists_of_verbs() -> None:
    """The table in README.md, and the lines of verbs in the package's docstring."""
    listed = {name: verb for name, verb in verbs().items() if verb["group"]}
    rows, group = [], ""
    for name, verb in listed.items():
        head = f"| {verb['group']} " if verb["group"] != group else "| "
        rows.append(f"{head}| `{name}` | {verb['summary']} |\n")
        group = verb["group"]
    page = SOURCE.parents[1] / "README.md"
    text = page.read_text("utf-8")
    listing = re.compile(r"(?:^\| ?\w* *\| `\w+` \| .* \|\n)+", re.M)
    page.write_text(listing.sub("".join(rows), text), "utf-8")
    door = SOURCE / "__init__.py"
    called = {**{name: name for name in listed}, "catalog": "catalog_rows", "measure": "measure_device"}
    text = door.read_text("utf-8")
    for name, verb in listed.items():
        line, said = (
            re.compile(rf"^    {called[name]} {{2,}}\S.*\n", re.M),
            f"    {called[name]:15} {verb['summary']}\n",
        )
        if name != "init" and not line.search(text):  # a new verb: above the blank line that ends the list
            head, listed_so_far, rest = text.partition("The verbs, one line each:\n\n")
            text = head + listed_so_far + rest.replace("\n\n", f"\n{said}\n", 1)
        text = line.sub(said, text)
    door.write_text(text, "utf-8")


def write_doors(doors: Doors) -> None:
    for path in SOURCE.rglob("__init__.py"):
        room = module_of(path).removesuffix(".__init__")
        if room in {*BY_HAND, "__init__"}:
            continue
        lines = [
            f"from .{home.removeprefix(room).removeprefix('.')} import {name} as {name}\n"
            for home in sorted(doors[room])
            for name in sorted(doors[room][home])
        ]
        path.with_suffix(".pyi").write_text("".join(lines), "utf-8")


def main() -> None:
    known, doors = homes(), defaultdict(lambda: defaultdict(set))
    for path in sorted(SOURCE.rglob("*.py")):
        if path.name != "__init__.py":
            put_right(path, known, doors, inside=True)
    public = names_of_the_package()
    for name in {verb["answer"] for verb in verbs().values()}.difference(public):
        doors["app"][known["app"][name]].add(name)
    lines = [f"from .{known['app'][name]} import {name} as {name}\n" for name in public]
    (SOURCE / "__init__.pyi").write_text("".join(["__version__: str\n\n", *lines]), "utf-8")
    for page in (SOURCE.parents[1] / "docs").rglob("*.md"):  # what a page shows must open as well
        text = page.read_text("utf-8")
        for module, names in re.findall(r"^from twofold\.([\w.]+) import (.+)$", text, re.M):
            if (SOURCE / f"{module.replace('.', '/')}.py").exists():
                continue  # the page names the module itself
            for name in names.split(", "):
                is_module = (SOURCE / module.replace(".", "/") / f"{name}.py").exists()
                home = "" if is_module else home_of(module, name, known)
                doors[room_of(home) if home else module][home].add(name)
    write_doors(doors)
    write_lists_of_verbs()
    for folder in ("tests", "bench", "fits"):
        for path in sorted((SOURCE.parents[1] / folder).rglob("*.py")):
            put_right(path, known, doors, inside=False)


if __name__ == "__main__":
    main()
