"""`twofold calibrate`: ten rows of your own make the plans of your machines surer."""

from pathlib import Path

import click

from twofold.cli.output import check_free, force_option, json_option, print_json, print_lines, today


@click.command("calibrate")
@click.argument("measurements", type=click.Path(path_type=Path))
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="The file to write; by default `.twofold/calibration.json` in this folder.",
)
@force_option
@json_option
def command(measurements: Path, out: Path | None, force: bool, as_json: bool) -> None:
    """Calibrate with the CSV table MEASUREMENTS of your own runs, in the columns that `predict` reads.

    Three to six named factors per accelerator and software are fitted, with shrinkage: about ten rows do.
    `plan`, `estimate` and `compare` beside the file use them. Rows that cannot be true are refused.
    """
    from twofold.app import CALIBRATION_FILE, calibrate
    from twofold.contracts.rows import CALIBRATION_SCHEMA, calibration_to_data

    target = out or CALIBRATION_FILE
    if out or target.parent.is_dir():
        check_free(target, force)
    answer = calibrate(measurements, target, today())
    if as_json:
        print_json(CALIBRATION_SCHEMA, {"file": str(target), **calibration_to_data(answer.data)})
    else:
        print_lines(answer.lines)
