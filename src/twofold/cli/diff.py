"""`twofold diff`: what changed between two plans."""

from pathlib import Path

import click

from twofold.cli.output import json_option, print_json, print_lines

SCHEMA = "twofold/diff/1"
CHANGED = 4


@click.command("diff")
@click.argument("old", type=click.Path(path_type=Path))
@click.argument("new", type=click.Path(path_type=Path))
@click.option("--all", "everything", is_flag=True, help="Every change, not only the twenty that matter most.")
@json_option
@click.pass_context
def command(ctx: click.Context, old: Path, new: Path, everything: bool, as_json: bool) -> None:
    """Show what changed from plan OLD to plan NEW; exit 4 when anything did."""
    from twofold.app import diff
    from twofold.core import to_data

    answer = diff(old, new)
    if as_json:
        print_json(SCHEMA, to_data(answer))
    else:
        print_lines(answer.all_lines if everything else str(answer).splitlines())
    if answer:
        ctx.exit(CHANGED)
