"""Published plans, each asked of the product by a command line and held against what was published.

    python -m fits.cases [ID…]              # the table, or some of its rows
    python -m fits.cases docs/accuracy.md   # this section of the page anew

`cases.csv` beside this file holds one case a row: the command, how the figure is read from what `--json`
prints (`reading`: from left to right, as in `1 / run.interruptions * run.total_s`), the published figure with
its band, and why it cannot be asked or is missed. Bands are what the source says, or what was thought fair
before the product was asked. No figure of a case is read by a model or a fit.
"""

import csv
import io
import json
import os
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from twofold.cli import main as twofold

TABLE = Path(__file__).with_suffix(".csv")
ROOT = TABLE.parents[1]
DAY = "1795392000"  # prices are judged by one day, so that the page is the same tomorrow
OUT = "predicted.csv"
HEADS = ("id", "what", "command", "answer", "published", "verdict")
TITLE = "## Published plans"
PAGE = f"""{TITLE}

Layouts, whole runs, failures and rates that others published, each asked by a command that runs as it stands
from the repository's root. *Inside*: the published band and the 80 % range of the answer overlap; what has no
range has to lie in the band itself. What ran and is refused is outside. Layouts are stated as published,
software too where the product knows it; machines and batch of model cards that leave them out are guesses,
which stand in the command. T04, T05, T58, T59, S14 and E03 show facts of the catalogue rather than models;
405B, MT-NLG, BLOOM, GPT-3 and MLPerf repeat rows that the fits have seen. Decode units are asked for their
step alone, with all but 1 % of the prompt cached.

Of the answers whose range does not hold the figure itself, about half share two causes. Software before 2023
has no era of its own: runs on A100 and TPU v4 come out a fifth to a third too short. And hours on model cards
count more than one run without a fault: batches that grow, stages, evaluation, what was done twice.

"""


class Figure(NamedTuple):
    """A number with its 80 % range; both ends equal it where the answer has none."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Case:
    """One published figure and how the product is asked for it; without a command it cannot be asked."""

    id: str
    what: str
    command: str
    reading: str
    value: float
    low: float
    high: float
    unit: str
    source: str
    why: str


@dataclass(frozen=True, slots=True)
class Asked:
    """What a command came to: its exit code, the figure (None where it is refused), what it said instead."""

    code: int
    figure: Figure | None
    said: str = ""


def read_cases(path: Path = TABLE) -> list[Case]:
    """All cases, in the order of the table."""
    with path.open(newline="", encoding="utf-8") as handle:
        return [
            Case(**{**row, **{name: float(row[name]) for name in ("value", "low", "high")}})  # type: ignore[arg-type]
            for row in csv.DictReader(handle)
        ]


def asked(case: Case) -> Asked:
    """The answer of a case's command."""
    code, text = _run(case.command)
    if code:
        errors = json.loads(text).get("errors", []) if text.startswith("{") else []
        return Asked(code, None, "; ".join(error["message"] for error in errors))
    if OUT not in case.command:
        return Asked(code, read_figure(json.loads(text), case.reading))
    rows = {row["id"]: row for row in csv.DictReader(io.StringIO(text))}
    return Asked(code, read_figure(rows, case.reading))


@cache
def _run(command: str) -> tuple[int, str]:
    """Exit code and data of a command line that starts with `twofold`, run from the repository's root."""
    words = shlex.split(command)[1:]
    told, unread = io.StringIO(), io.StringIO()
    before = os.environ.get("SOURCE_DATE_EPOCH")
    os.environ["SOURCE_DATE_EPOCH"] = DAY
    try:
        with TemporaryDirectory() as folder, chdir(ROOT), redirect_stdout(told), redirect_stderr(unread):
            out = Path(folder) / OUT
            code = twofold([str(out) if word == OUT else word for word in words] + ["--json"])
            return code, out.read_text("utf-8") if out.exists() else told.getvalue()
    finally:
        os.environ.pop("SOURCE_DATE_EPOCH")
        if before is not None:
            os.environ["SOURCE_DATE_EPOCH"] = before


def read_figure(data: Any, reading: str) -> Figure:
    """`PATH * 8 / PATH` from left to right; what is multiplied or divided by counts as its median.

    Where a number is divided by the first path, the range is that path's, turned over.
    """
    words = reading.split()
    found = _operand(data, words[0])
    for sign, word in zip(words[1::2], words[2::2], strict=True):
        other = _operand(data, word)
        if sign == "+":
            found = Figure(*(a + b for a, b in zip(found, other, strict=True)))
        elif sign == "*":
            found = Figure(found.value * other.value, *sorted(a * other.value for a in found[1:]))
        elif found.low < found.high:
            found = Figure(*(a / other.value for a in found))
        else:
            found = Figure(found.value / other.value, found.value / other.high, found.value / other.low)
    return found


def _operand(data: Any, word: str) -> Figure:
    """A number, or what stands at a path: `run.accelerator_h`, `step_parts[compute].value`, `S28.pred_x`."""
    try:
        return Figure(*[float(word)] * 3)
    except ValueError:
        pass
    at, ends = data, None
    for key in word.replace("[", ".").replace("]", "").split("."):
        if isinstance(at, list):
            at = at[int(key)] if key.isdigit() else next(each for each in at if each["name"] == key)
        else:
            ends = [at[key + end] for end in ("_low", "_high")] if f"{key}_low" in at else None
            at = at[key]
    if isinstance(at, dict):
        return Figure(*(float(at[name]) for name in ("value", "low", "high")))
    return Figure(*map(float, (at, *(ends or (at, at)))))


def off_by(case: Case, figure: Figure) -> float:
    """How far the near ends of range and band are apart, as a share of the band's; 0 where they overlap."""
    if figure.low > case.high:
        return figure.low / case.high - 1.0
    return figure.high / case.low - 1.0 if figure.high < case.low else 0.0


def verdict(case: Case, answer: Asked | None) -> str:
    """Inside, by how much outside, refused, or not answerable, with why."""
    why = f": {case.why}" if case.why else ""
    if answer is None:
        return f"not answerable{why}"
    if answer.figure is None:
        return f"**refused**{why}"
    off = off_by(case, answer.figure)
    return f"**outside by {off:+.0%}**{why}" if off else "inside"


def cases_table(cases: Sequence[Case]) -> list[str]:
    """The section of the page."""
    found = [(case, asked(case) if case.command else None) for case in cases]
    lines = ["| " + " | ".join(HEADS) + " |", "| --- | --- | --- | --: | --: | --- |"]
    for case, answer in found:
        figure = answer.figure if answer else None
        band = Figure(case.value, case.low, case.high)
        cells = (
            case.id,
            case.what,
            f"`{case.command}`" if case.command else "–",
            f"{_ranged(figure)} {case.unit}".rstrip() if figure else "–",
            " ".join(filter(None, (_ranged(band), case.unit, f"({case.source})"))),
            verdict(case, answer),
        )
        lines.append("| " + " | ".join(cell.replace("|", "/") for cell in cells) + " |")
    return [*PAGE.splitlines(), *_shares(found), "", *lines, ""]


def with_section(page: str, section: Sequence[str]) -> str:
    """The page with its section of cases replaced, or put where the peers begin."""
    before, found, rest = page.partition(f"{TITLE}\n")
    if not found:
        before, _, rest = page.partition("## Peers and baselines, on the same rows")
        return "\n".join(
            [before + section[0], *section[1:], f"## Peers and baselines, on the same rows{rest}"]
        )
    return "\n".join([before + section[0], *section[1:], rest[rest.index("\n## ") + 1 :]])


def _shares(found: Iterable[tuple[Case, Asked | None]]) -> Iterator[str]:
    known = [(case, answer) for case, answer in found if answer is not None]
    inside = [case for case, answer in known if verdict(case, answer) == "inside"]
    share = len(inside) / max(1, len(known))
    yield f"Of {len(known)} that can be asked, {len(inside)} are inside ({share:.0%})"
    yield f"({_by_kind(inside, [case for case, _ in known])})."
    answers = [(case, answer.figure) for case, answer in known if answer.figure]
    ranged = [(case, figure) for case, figure in answers if figure.low < figure.high]
    held = [case for case, figure in ranged if figure.low <= case.value <= figure.high]
    yield f"Of {len(ranged)} that have a range, {len(held)} hold the published figure itself"
    yield f"({_by_kind(held, [case for case, _ in ranged])})."


def _by_kind(some: Sequence[Case], of: Sequence[Case]) -> str:
    """How many of the cases of each kind are among some of them."""
    counts = (
        (title, *(sum(_kind(case) == title for case in cases) for cases in (some, of)))
        for title in dict.fromkeys(map(_kind, of))
    )
    return "; ".join(f"{title}, {few} of {all_of}" for title, few, all_of in counts)


def _kind(case: Case) -> str:
    if case.command.startswith("twofold plan"):
        return "fleets"
    return {"T": "training and machines", "S": "serving", "E": "named by a review"}[case.id[0]]


def _ranged(figure: Figure) -> str:
    value, low, high = map(_short, figure)
    return value if low == high else f"{value} [{low}–{high}]"


def _short(value: float) -> str:
    for size, name in ((1e6, " M"), (1e4, " k")):
        if abs(value) >= size:
            return f"{value / (1e6 if size == 1e6 else 1e3):.3g}{name}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def main() -> None:
    """Print the table or the rows that are named, or write the section of a page."""
    wanted = set(sys.argv[1:])
    pages = [Path(word) for word in wanted if word.endswith(".md")]
    lines = cases_table([case for case in read_cases() if pages or not wanted or case.id in wanted])
    for path in pages:
        path.write_text(with_section(path.read_text("utf-8"), lines), "utf-8")
    if not pages:
        print("\n".join(lines))


if __name__ == "__main__":
    main()
