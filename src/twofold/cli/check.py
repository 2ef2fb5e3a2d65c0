"""`twofold check`: is this spec right?"""

from pathlib import Path

import click

from twofold.cli.output import json_option, print_json, print_lines, today

SCHEMA = "twofold/check/1"


@click.command("check")
@click.argument("spec", type=click.Path(path_type=Path))
@json_option
def command(spec: Path, as_json: bool) -> None:
    """Validate SPEC: a file, or a folder with a twofold.yaml. Every error in one pass; exit 2 if any."""
    from twofold.app import check

    answer = check(spec, today())
    if as_json:
        defaults = [{"path": one.path, "value": one.text, "meaning": one.meaning} for one in answer.defaults]
        runs, services = answer.spec.training, answer.spec.services
        names = {"training": [run.name for run in runs], "serving": [service.name for service in services]}
        print_json(SCHEMA, {"name": answer.spec.name, **names, "defaults": defaults})
    else:
        print_lines(answer.lines)
