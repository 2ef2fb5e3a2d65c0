"""`twofold claims`: what circulates about infrastructure, judged by the product itself."""

import json
from math import isfinite
from pathlib import Path
from typing import Any

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
    from twofold.core import to_data

    with patient_bar() as bar:
        names = [name.strip() for name in only.split(",") if name.strip()]
        answer = claims(names, topic, verdict or "", catalog=catalog, cases=cases, tell=bar)
    if as_json:
        rows = [to_data(each) for each in answer.data]
        click.echo(json.dumps(rows, indent=1, allow_nan=False, ensure_ascii=False))
    else:
        print_lines(answer.lines)


def _print_value(expression: str, catalog: Path | None, as_json: bool) -> None:
    from twofold.app import claim_unit, claim_value
    from twofold.core import to_data

    plain = _finite(to_data(claim_value(expression, catalog)))
    if as_json:
        unit = "" if isinstance(plain, dict) else claim_unit(expression)
        data = {"expression": expression, "value": plain, "unit": unit}
        click.echo(json.dumps(data, indent=1, allow_nan=False))
    elif isinstance(plain, dict):
        print_lines(f"{name} {_shown(held, claim_unit('', name))}" for name, held in plain.items())
    else:
        click.echo(_shown(plain, claim_unit(expression)))


def _shown(value: Any, unit: str) -> str:
    """`72 W`; texts, and yes or no, have no unit."""
    if value is None:
        return "none"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    number = f"{value:.6g}" if isinstance(value, float) else str(value)
    return f"{number} {unit}".strip()


def _finite(value: Any) -> Any:
    """Plain data in which what is not finite is none, as JSON knows no other way to say so."""
    if hasattr(value, "item"):  # a numpy number
        value = value.item()
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not isfinite(value) else value
