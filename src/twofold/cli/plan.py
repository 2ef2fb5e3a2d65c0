"""`twofold plan`: both halves of a spec on one screen."""

from pathlib import Path

import click

from twofold.cli.output import (
    check_free,
    force_option,
    json_option,
    out_option,
    print_lines,
    today,
    write_text,
)
from twofold.cli.progress import patient_bar


@click.command("plan")
@click.argument("spec", type=click.Path(path_type=Path))
@json_option
@click.option(
    "--details", is_flag=True, help="Add memory by format, percentiles, the front, scaling, unknowns."
)
@click.option(
    "--money", is_flag=True, help="Add every line of the bill, owning, outages, levers, sensitivity."
)
@click.option("--rehearse", is_flag=True, help="Confirm the two best fleets of each service on the twin.")
@click.option("--show-defaults", is_flag=True, help="List every value that the spec left open.")
@out_option
@force_option
def command(
    spec: Path,
    as_json: bool,
    details: bool,
    money: bool,
    rehearse: bool,
    show_defaults: bool,
    out: Path | None,
    force: bool,
) -> None:
    """Plan both halves of SPEC: a file, or a folder with a twofold.yaml.

    `--out plan.json` keeps the plan as data for `explain` and `diff`, whatever is printed.
    """
    from twofold.app import money_detailed, plan, rehearsed_plan
    from twofold.contracts.results import plan_to_json
    from twofold.report import default_lines, detail_lines, detail_money_lines, plan_lines

    if out:
        check_free(out, force)
    with patient_bar() as tell:
        answer = rehearsed_plan(spec, today(), tell) if rehearse else plan(spec, today())
    if money:
        answer = money_detailed(answer, spec, today())
    if out:
        write_text(out, plan_to_json(answer))
    if as_json:
        click.echo(plan_to_json(answer), nl=False)
        return
    lines = plan_lines(answer, str(spec))
    if details:
        lines += ["", *detail_lines(answer, str(spec), money_follows=money and answer.money is not None)]
    if money and answer.money:
        lines += ["", *detail_money_lines(answer.money)]
    if show_defaults:
        lines += ["", *default_lines(answer)]
    print_lines(lines)
