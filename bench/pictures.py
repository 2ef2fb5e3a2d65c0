"""Draws the pictures of README.md and docs/, from the examples' plans as pages show them.

python -m bench.pictures docs/pictures
"""

import sys
from collections.abc import Iterable
from datetime import date
from pathlib import Path

from twofold.catalog.catalog import load_catalog
from twofold.charts.chart import Chart
from twofold.charts.of_plan import charts_of_plan
from twofold.charts.svg import WIDTH, svg_of
from twofold.contracts.results.plan import Plan
from twofold.contracts.spec.reader import read_spec
from twofold.perf.constants import load_constants
from twofold.planner.build import PlanOptions, build_plan

DAY = date(2026, 11, 21)  # as in the docs, so that prices do not age
# Example and key of the chart: what stands at `#chart:KEY` of its page.
SHOWN = (
    ("assistant", "calendar"),
    ("assistant", "goals.serve"),
    ("assistant", "memory.pretrain"),
    ("assistant", "budget.serve"),
    ("assistant", "unknowns.step"),
    ("moe", "step.pretrain"),
    ("portfolio", "front.base"),
)

# On a page a chart takes the colours around it; alone it follows the reader's mode, ink and ground together.
COLOURS = (
    "svg{--ink:#1b1b1b;--soft:#5f6368;--line:#d9dce0;--paper:#fff}.paper{fill:var(--paper)}"
    "@media (prefers-color-scheme:dark){svg{--ink:#e8e8e8;--soft:#a5a9ae;--line:#3c4043;--paper:#16181b}}"
)


def file_name(example: str, key: str) -> str:
    return f"{example}-{key.replace('.', '-')}.svg"


def pictures(plans: dict[str, Plan]) -> dict[str, str]:
    """The text of each file by its name."""
    drawn = {(name, chart.key): chart for name, plan in plans.items() for chart in charts_of_plan(plan)}
    return {file_name(*each): svg_file(drawn[each]) for each in SHOWN}


def svg_file(chart: Chart) -> str:
    """The chart as the text of a file that any viewer shows, and that a page may show as an image."""
    tag, _, rest = svg_of(chart).partition(">")
    height = float(tag.partition('viewBox="')[2].partition('"')[0].split()[3])
    sized = f'{tag} width="{WIDTH:.0f}" height="{height:.0f}">'
    paper = '<rect class="paper" width="100%" height="100%" rx="6"/>'
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{sized}<style>{COLOURS}</style>{paper}{rest}\n'


def write(folder: Path, made: dict[str, str]) -> None:
    """These files and no other picture."""
    folder.mkdir(exist_ok=True)
    for path in folder.glob("*.svg"):
        if path.name not in made:
            path.unlink()
    for name, text in made.items():
        (folder / name).write_text(text, "utf-8")


def planned(names: Iterable[str]) -> dict[str, Plan]:
    """The plans of examples on the day of the docs."""
    known = load_catalog(), load_constants()
    found = {}
    for name in dict.fromkeys(names):
        spec = read_spec(Path("examples", name, "twofold.yaml"))
        found[name] = build_plan(spec, *known, spec_digest="0", options=PlanOptions(today=DAY)).plan
    return found


if __name__ == "__main__":
    write(Path(sys.argv[1]), pictures(planned(name for name, _ in SHOWN)))
