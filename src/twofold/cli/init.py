"""`twofold init`: the first spec."""

from pathlib import Path
from typing import Literal

import click

from twofold.cli.output import check_free, force_option, json_option, print_json, print_lines, write_text

SCHEMA = "twofold/init/1"
STDOUT = Path("-")


@click.command("init")
@click.option(
    "--kind",
    type=click.Choice(["chat", "train", "both"]),
    default="both",
    show_default=True,
    help="What is planned.",
)
@click.option("--from", "source", help="Infer from 'vllm serve …', a requests.jsonl or a sacct.csv instead.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("twofold.yaml"),
    show_default=True,
    help="`-` prints it.",
)
@force_option
@json_option
def command(
    kind: Literal["chat", "train", "both"], source: str | None, out: Path, force: bool, as_json: bool
) -> None:
    """Write a commented starter spec; with --from, infer one, the rest marked `# assumed`."""
    from twofold.app import infer, starter

    if out != STDOUT:
        check_free(out, force)
    text = starter(kind) if source is None else infer(source)
    if out != STDOUT:
        write_text(out, text)
    if as_json:
        print_json(SCHEMA, {"file": None if out == STDOUT else str(out), "spec": text})
    elif out == STDOUT:
        click.echo(text, nl=False)
    else:
        print_lines([f"wrote {out}", f"next: twofold check {out} · twofold plan {out}"])
