"""`python -m bench.peers baselines|calculon|aiconfigurator|again --data FOLDER --out FILE [--path PEER]`.

Scores the tool and ours on the same open rows; replaces the tool's lines in FILE and in answers.csv and
outcomes.csv beside it. `again` asks no peer: it scores the baselines and the stored answers beside ours of
today.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.peers import aiconfigurator, baselines, calculon
from bench.peers.compare import (
    FILES,
    Answer,
    Tool,
    kept_answers,
    lines,
    ours,
    outcomes,
    scored_rows,
    stored_answers,
)
from bench.peers.stored import ANSWERS, OUTCOMES, Line, Outcome, Told, read, replace
from twofold.catalog.catalog import Catalog, load_catalog
from twofold.core.errors import InputError, TwofoldError
from twofold.measure.truth import Row
from twofold.perf.constants import Constants, load_constants

MOST_ROWS = 150
FRACTION = {"training": "constant MFU", "inference": "constant fraction of roofline"}
Scored = tuple[list[Line], list[Outcome]]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one comparison; 2 with a message where an input or the peer is missing."""
    told = parser().parse_args(arguments)
    try:
        found, ended = RUN[told.tool](told, load_catalog(), load_constants())
    except TwofoldError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    replace(told.out, Line, found)
    replace(told.out.with_name(OUTCOMES), Outcome, ended)
    _show(found, ended)
    return 0


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description=__doc__)
    parser.add_argument("tool", choices=sorted(RUN))
    parser.add_argument("--data", type=Path, required=True, help="folder with training.csv and inference.csv")
    parser.add_argument("--out", type=Path, required=True, help="results file; the tool's lines are replaced")
    parser.add_argument("--path", type=Path, help="Calculon's folder, or the environment of AIConfigurator")
    parser.add_argument("--python", default=sys.executable, help="interpreter for Calculon")
    parser.add_argument(
        "--rows", type=int, default=MOST_ROWS, help="at most so many rows a source, for peers"
    )
    return parser


def _baselines(told: argparse.Namespace, catalog: Catalog, constants: Constants) -> Scored:
    found: list[Line] = []
    ended: list[Outcome] = []
    for half in FILES:
        rows = scored_rows(half, told.data)
        own = ours(half, rows, catalog, constants)
        scored = _both_baselines(half, rows, own, catalog, constants)
        found, ended = found + scored[0], ended + scored[1]
    return found, ended


def _both_baselines(
    half: str, rows: Sequence[Row], own: Sequence[Row], catalog: Catalog, constants: Constants
) -> Scored:
    bounds = baselines.roofline(half, rows, catalog, constants)
    pure: list[Answer] = [bound if isinstance(bound, str) else bound.values for bound in bounds]
    scored = {"roofline": pure, FRACTION[half]: baselines.constant_fraction(half, rows, bounds)}
    found = [line for tool, each in scored.items() for line in lines(Tool(tool, "", half), own, each)]
    return found, [end for tool, each in scored.items() for end in outcomes(tool, half, each)]


def _calculon(told: argparse.Namespace, catalog: Catalog, constants: Constants) -> Scored:
    if told.path is None or not (told.path / "calculon" / "__init__.py").exists():
        raise InputError(
            f"no Calculon in '{told.path}'" if told.path else "no '--path' says where Calculon is",
            hint="clone github.com/calculon-ai/calculon and pass its folder as --path",
        )
    rows = scored_rows(calculon.HALF, told.data)
    version, answers = calculon.predict(rows, catalog, told.python, str(told.path), told.rows)
    return _peer(told, Tool("Calculon", version, calculon.HALF), rows, answers, catalog, constants)


def _aiconfigurator(told: argparse.Namespace, catalog: Catalog, constants: Constants) -> Scored:
    python = str(told.path / "bin" / "python") if told.path else sys.executable
    rows = scored_rows(aiconfigurator.HALF, told.data)
    version, answers = aiconfigurator.predict(rows, catalog, constants, python, told.rows)
    tool = Tool("AIConfigurator", version, aiconfigurator.HALF)
    return _peer(told, tool, rows, answers, catalog, constants)


def _peer(
    told: argparse.Namespace,
    tool: Tool,
    rows: Sequence[Row],
    answers: Sequence[Answer],
    catalog: Catalog,
    constants: Constants,
) -> Scored:
    """Keep what the peer said, which may have taken minutes, before ours is asked."""
    replace(told.out.with_name(ANSWERS), Told, kept_answers(tool, rows, answers))
    ended = outcomes(tool.name, tool.half, answers)
    replace(told.out.with_name(OUTCOMES), Outcome, ended)
    asked = [place for place, answer in enumerate(answers) if not isinstance(answer, str)]
    own = ours(tool.half, [rows[place] for place in asked], catalog, constants)
    return lines(tool, own, [answers[place] for place in asked]), ended


def _again(told: argparse.Namespace, catalog: Catalog, constants: Constants) -> Scored:
    """Everything that needs no peer, in one pass of ours over all rows."""
    stored = read(told.out.with_name(ANSWERS), Told)
    found: list[Line] = []
    ended: list[Outcome] = []
    for half in FILES:
        rows = scored_rows(half, told.data)
        own = ours(half, rows, catalog, constants)
        scored = _both_baselines(half, rows, own, catalog, constants)
        found, ended = found + scored[0], ended + scored[1]
        for tool in dict.fromkeys(_tool_of(each) for each in stored if each.half == half):
            answers = stored_answers(rows, [each for each in stored if _tool_of(each) == tool])
            found += lines(tool, own, answers)
    return found, ended


def _tool_of(told: Told) -> Tool:
    return Tool(told.tool, told.version, told.half)


def _show(found: Sequence[Line], ended: Sequence[Outcome]) -> None:
    for line in found:
        told = f"{line.tool:30}{line.figure:16}{line.source:22}{line.rows:6}"
        theirs = f"{line.mean_error:8.1%}{line.median_error:8.1%}{line.bias:+8.1%}"
        ours = f"{line.ours_mean_error:8.1%}{line.ours_median_error:8.1%}{line.ours_bias:+8.1%}"
        print(f"{told}{theirs}   ours, {line.ours_constants}:{ours}")
    for each in ended:
        print(f"{each.tool:30}{each.half:12}{each.rows:6}  {each.outcome}")


RUN = {
    "baselines": _baselines,
    "calculon": _calculon,
    "aiconfigurator": _aiconfigurator,
    "again": _again,
}

if __name__ == "__main__":
    sys.exit(main())
