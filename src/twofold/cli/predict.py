"""`twofold predict`: what the models say of runs that were measured, or will be."""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import click

from twofold.cli.output import check_free, force_option, json_option, print_json, print_lines

SCHEMA = "twofold/predict/1"
PATIENCE_S = 2.0  # a shorter wait shows no progress
BAR_WIDTH = 40


@click.command("predict")
@click.argument("half", type=click.Choice(["training", "inference"]))
@click.option("--in", "rows", required=True, type=click.Path(path_type=Path), help="A CSV table of runs.")
@click.option(
    "--out", required=True, type=click.Path(path_type=Path), help="Where it goes, with predictions."
)
@force_option
@json_option
def command(
    half: Literal["training", "inference"], rows: Path, out: Path, force: bool, as_json: bool
) -> None:
    """Predict every row of a table of training or inference runs, and append `pred_…` columns to it.

    Only what a user could know beforehand is read. A row that cannot be predicted says why in `pred_error`.
    """
    from twofold.app import predict
    from twofold.core import to_data

    check_free(out, force)
    answer = predict(half, rows, out, _progress())
    if as_json:
        print_json(SCHEMA, {"half": half, "file": str(out), **to_data(answer)})
    else:
        print_lines([str(answer), f"wrote {out}"])


def _progress() -> Callable[[float], None]:
    """A bar on stderr where somebody watches and the wait is worth one; nothing anywhere else."""
    start_s = time.monotonic()

    def show(fraction: float) -> None:
        if sys.stderr.isatty() and time.monotonic() - start_s > PATIENCE_S:
            full = round(BAR_WIDTH * min(fraction, 1.0))
            end = "\n" if fraction >= 1.0 else ""
            click.echo(
                f"\r{'█' * full}{'·' * (BAR_WIDTH - full)} {100 * fraction:3.0f} %{end}", nl=False, err=True
            )

    return show
