"""`twofold down`: ends what `up` started."""

from pathlib import Path

import click

from twofold.cli.output import json_option, print_json

SCHEMA = "twofold/down/1"


@click.command("down")
@click.argument("spec", type=click.Path(path_type=Path))
@click.option("--keep", is_flag=True, help="Keep its files: device, checkpoints, artefacts, logs.")
@json_option
def command(spec: Path, keep: bool, as_json: bool) -> None:
    """Stop every process that `up` started for SPEC and remove its state."""
    from twofold.app import down, state_of

    there = state_of(spec).is_dir()
    stopped = down(spec, keep=keep)
    if as_json:
        print_json(SCHEMA, {"stopped_processes": stopped, "state_removed": there and not keep})
        return
    count = f"{stopped} process{'es' if stopped != 1 else ''} stopped"
    click.echo(f"{count}; {'no state there' if not there else 'state kept' if keep else 'state removed'}")
