"""Writes the lists of verbs after the table of verbs: in README.md, and in the package's docstring.

python -m bench.verb_lists
"""

import ast
import re
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "twofold"
SEVERAL = {
    "measure",
    "keys",
    "jobs",
    "registry",
}  # verbs of several functions, whose lines are written by hand


def verbs() -> dict[str, dict[str, str]]:
    """Group and summary of every verb, by its name."""
    found: dict[str, dict[str, str]] = {}
    for name in ("verbs", "estimate"):
        tree = ast.parse((SOURCE / "cli" / f"{name}.py").read_text("utf-8"))
        tables = [node for node in ast.walk(tree) if isinstance(node, ast.Dict)]
        for key, row in (pair for table in tables for pair in zip(table.keys, table.values, strict=True)):
            if isinstance(key, ast.Constant) and isinstance(row, ast.Call):
                texts = [each for each in row.keywords if isinstance(each.value, ast.Constant)]
                found[str(key.value)] = {"group": ""} | {
                    each.arg or "": ast.literal_eval(each.value) for each in texts
                }
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
    called = {name: name for name in listed if name not in SEVERAL}
    called |= {"catalog": "catalog_rows", "report": "write_page"}
    text = door.read_text("utf-8")
    for name, verb in ((each, listed[each]) for each in called):
        line, said = (
            re.compile(rf"^    {called[name]} {{2,}}\S.*\n", re.M),
            f"    {called[name]:15} {verb['summary']}\n",
        )
        if name != "init" and not line.search(text):  # a new verb: above the blank line that ends the list
            head, listed_so_far, rest = text.partition("The verbs, one line each:\n\n")
            text = head + listed_so_far + rest.replace("\n\n", f"\n{said}\n", 1)
        text = line.sub(said, text)
    door.write_text(text, "utf-8")


if __name__ == "__main__":
    write_lists_of_verbs()
