"""`twofold validate`: how far predictions lie from measurements, and from the goals."""

import sys
import time
from collections.abc import Callable
from pathlib import Path

import click

from twofold.cli.output import json_option, print_json, print_lines
from twofold.cli.progress import stage_bar
from twofold.core import UsageError

SCHEMA = "twofold/validation/1"
LINT_SCHEMA = "twofold/lint/1"
WORSE = 3
PATIENCE_S = 2.0  # a shorter wait shows no progress
PROCESSES = 2  # for a folder of thousands of rows


@click.command("validate")
@click.argument("half", default="", metavar="[training|inference|kernels]")
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    help="A table of measured runs, or a folder of them; the packaged sample by default.",
)
@click.option("--by", default="source", show_default=True, help="source,gpu,framework,arch,phase: group by.")
@click.option(
    "--lint", "table", type=click.Path(path_type=Path), help="Only look for rows that cannot be true."
)
@click.option("--gate", is_flag=True, help="Exit 3 when errors are worse than the committed figures.")
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    half: str,
    data: Path | None,
    by: str,
    table: Path | None,
    gate: bool,
    as_json: bool,
) -> None:
    """Score predictions on measured runs: goals first, then errors, order and ranges by group.

    Each row is predicted by constants that never saw its source. Without a half, all that there are.
    """
    if table is not None:
        if data is not None or gate:
            raise UsageError("`--lint` takes neither `--data` nor `--gate`", hint="run it by itself")
        _lint(table, half, as_json)
        return
    from twofold.app import validate

    names = [name.strip() for name in by.split(",") if name.strip()]
    with stage_bar() as bar:
        answer = validate(half, data, names or ["source"], gate, _patient(bar), PROCESSES)
    if as_json:
        print_json(SCHEMA, answer.as_data)
    else:
        print_lines(answer.lines)
    if answer.gate and answer.gate.failure:
        ctx.exit(WORSE)


def _lint(table: Path, half: str, as_json: bool) -> None:
    from twofold.app import lint_table
    from twofold.core import to_data

    answer = lint_table(table, half)
    if as_json:
        print_json(LINT_SCHEMA, to_data(answer))
    else:
        print_lines(answer.lines)


def _patient(bar: Callable[[str], None]) -> Callable[[str], None]:
    """The bar where somebody watches, once the wait is worth one."""
    start_s = time.monotonic()

    def tell(text: str) -> None:
        if sys.stderr.isatty() and time.monotonic() - start_s > PATIENCE_S:
            bar(text)

    return tell
