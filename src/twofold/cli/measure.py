"""`twofold measure`: benchmarks of this machine, for the plans that are made on it."""

from pathlib import Path

import click

from twofold.cli.output import json_option, print_json, print_lines, today

SCHEMA = "twofold/measure-device/1"


@click.group("measure")
def command() -> None:
    """Measure what plans are made from."""


@command.command("device")
@click.option("--ranks", type=int, help="Equal shares of the machine; by default 2, or one per accelerator.")
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="The folder of the spec; the working folder by default.",
)
@json_option
def device(ranks: int | None, out: Path | None, as_json: bool) -> None:
    """Measure this machine as a device named `this-machine`, in about a minute.

    Writes `.twofold/device` beside the spec: its row, its node, and the constants of its kernels, links,
    training framework and serving engine. `plan`, `estimate` and `compare` there use them.
    """
    from twofold.app import measure_device
    from twofold.core import to_data

    answer = measure_device(out, ranks, today(), lambda stage: click.echo(f"measuring: {stage}", err=True))
    if as_json:
        record = to_data(answer.record)
        print_json(
            SCHEMA,
            {"folder": str(answer.folder), **record, "measured_on": answer.record.measured_on.isoformat()},
        )
    else:
        print_lines(answer.lines)
