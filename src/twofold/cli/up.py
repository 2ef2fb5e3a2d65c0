"""`twofold up`: the loop on this machine, from a spec to planned beside measured."""

from pathlib import Path

import click

from twofold.cli.output import check_free, force_option, json_option, out_option, print_lines, write_text
from twofold.cli.progress import stage_bar


@click.command("up")
@click.argument("spec", type=click.Path(path_type=Path))
@click.option("--port", type=click.IntRange(1, 65535), default=8700, show_default=True, help="The gateway's.")
@click.option("--load-for", default="12 s", show_default=True, help="How long each load is held.")
@json_option
@out_option
@force_option
def command(spec: Path, port: int, load_for: str, as_json: bool, out: Path | None, force: bool) -> None:
    """Measure this machine, plan for it, train, serve, load, and compare.

    SPEC is a file, or a folder with a twofold.yaml, such as examples/laptop. The service goes on until
    `twofold down SPEC`; state lies in `.twofold` beside the spec. It may be stopped and called again.
    """
    from twofold.app import loop_json, up
    from twofold.report import loop_lines

    if out:
        check_free(out, force)
    with stage_bar() as tell:
        page = up(spec, port=port, load_for=load_for, tell=tell)
    if out:
        write_text(out, loop_json(page))
    if as_json:
        click.echo(loop_json(page), nl=False)
    else:
        print_lines(loop_lines(page))
