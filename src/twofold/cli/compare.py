"""`twofold compare`: each half on the other's fleet, or one axis at a time."""

from pathlib import Path
from typing import Literal

import click

from twofold.cli.output import json_option, print_lines, today

AXES = ["fabric", "nodes", "context", "size", "format", "tenancy"]


@click.command("compare")
@click.argument("spec", type=click.Path(path_type=Path))
@click.option("--ladder", type=click.Choice(AXES), help="Compare along one axis instead.")
@json_option
def command(
    spec: Path,
    ladder: Literal["fabric", "nodes", "context", "size", "format", "tenancy"] | None,
    as_json: bool,
) -> None:
    """Show each half of SPEC on the other's fleet, in cost and latency.

    With --ladder one thing changes at a time: the network between nodes, how many nodes, how long a context,
    the size of the model, the number format of its weights, bare metal or virtual machines.
    """
    from twofold.app import compare

    answer = compare(spec, ladder, today())
    if not as_json:
        print_lines(answer.lines)
        return
    from twofold.contracts.results import plan_to_json

    click.echo(plan_to_json(answer.data), nl=False)  # type: ignore[arg-type]  # any answer with a schema
