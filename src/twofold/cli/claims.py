"""`twofold claims`: what circulates about infrastructure, judged by the product itself."""

import json
from pathlib import Path

import click

from twofold.cli.output import json_option, print_lines
from twofold.cli.progress import patient_bar
from twofold.core import UsageError

VERDICTS = ["holds", "conditional", "contradicted", "unverifiable"]


@click.command("claims")
@click.option("--only", default="", help="These claims, such as S0-22,S2-13.")
@click.option("--topic", default="", help="Claims of one topic, such as power.")
@click.option("--verdict", type=click.Choice(VERDICTS), help="Show those with one verdict.")
@click.option("--cases", is_flag=True, help="Show what every case came to.")
@click.option(
    "--compute", "expression", default="", help="Print one quantity instead: \"catalog('L4').tdp_w\"."
)
@click.option("--catalog", type=click.Path(path_type=Path), help="A folder with rows of yours.")
@json_option
def command(
    only: str,
    topic: str,
    verdict: str | None,
    cases: bool,
    expression: str,
    catalog: Path | None,
    as_json: bool,
) -> None:
    """Judge claims that circulate about training and inference infrastructure.

    Each verdict is computed from the catalogue and the models that plans use: it holds, it is conditional
    (true in some of its cases), it is contradicted, or nothing computable decides it. Every claim comes with
    its figures and with the command that shows one of them.
    """
    if expression:
        if only or topic or verdict:
            raise UsageError(
                "`--compute` judges no claims", hint="leave out `--only`, `--topic` and `--verdict`"
            )
        _print_value(expression, catalog, as_json)
        return
    from twofold.app import claims
    from twofold.contracts import plan_to_dict

    with patient_bar() as bar:
        names = [name.strip() for name in only.split(",") if name.strip()]
        answer = claims(names, topic, verdict or "", catalog=catalog, cases=cases, tell=bar)
    if as_json:
        rows = [plan_to_dict(each) for each in answer.data]
        click.echo(json.dumps(rows, indent=1, allow_nan=False, ensure_ascii=False))
    else:
        print_lines(answer.lines)


def _print_value(expression: str, catalog: Path | None, as_json: bool) -> None:
    from twofold.app import claim_value
    from twofold.contracts import plan_to_dict

    value = claim_value(expression, catalog)
    plain = plan_to_dict(value) if hasattr(value, "__dataclass_fields__") else value
    if as_json:
        click.echo(json.dumps({"expression": expression, "value": plain}, indent=1, allow_nan=False))
    elif isinstance(plain, dict):
        print_lines(f"{name} {shown}" for name, shown in plain.items())
    else:
        click.echo("none" if plain is None else f"{plain:.6g}" if isinstance(plain, float) else str(plain))
