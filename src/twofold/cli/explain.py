"""`twofold explain`: where a number of a plan comes from."""

from pathlib import Path

import click

from twofold.cli.output import json_option, print_json, print_lines

SCHEMA = "twofold/explain/1"


@click.command("explain")
@click.argument("plan", type=click.Path(path_type=Path))
@click.argument("path", default="")
@json_option
def command(plan: Path, path: str, as_json: bool) -> None:
    """Print the derivation of PATH in PLAN, a file that `twofold plan SPEC --out PLAN` wrote.

    PATH reads like training.pretrain.step_s; a part of the plan lists what is below it.
    """
    from twofold.app import explain

    answer = explain(plan, path)
    if as_json:
        print_json(SCHEMA, {"path": path, "lines": list(answer.lines)})
    else:
        print_lines(answer.lines)
