"""The command that reproduces a figure: the verb that shows it, else the expression itself."""

import ast
import inspect
import shlex
from collections.abc import Mapping
from typing import Any

from twofold.core import TwofoldError
from twofold.verdicts.language import bound, calls_in, evaluate, subject
from twofold.verdicts.quantities import QUANTITIES
from twofold.verdicts.table import Predicate


def command_of(claim_id: str, predicate: Predicate, variables: Mapping[str, Any]) -> str:
    """A command that prints the figure that a predicate is about, with its variables filled in."""
    about = subject(predicate.tree)
    text = bound(about, variables)
    calls = calls_in(about)
    if not calls:
        return f"twofold claims --only {claim_id}"
    alone = ast.unparse(about) == ast.unparse(calls[0]) or isinstance(about, ast.Attribute)
    asked = about.attr if isinstance(about, ast.Attribute) else ""
    if alone and len(calls) == 1 and (direct := _direct(calls[0], variables, asked)):
        return direct
    return f"twofold claims --compute {quoted(text)}"


def _direct(node: ast.Call, variables: Mapping[str, Any], asked: str) -> str:
    """The verb that shows a quantity with these arguments; "" where none does."""
    assert isinstance(node.func, ast.Name)
    quantity = QUANTITIES.get(node.func.id)
    if quantity is None or quantity.command is None:
        return ""
    try:
        positional = [evaluate(each, variables, _refuse) for each in node.args]
        named = {each.arg: evaluate(each.value, variables, _refuse) for each in node.keywords if each.arg}
        given = inspect.signature(quantity.function).bind(None, *positional, **named)
    except (TwofoldError, TypeError):
        return ""
    given.apply_defaults()
    return quantity.command(given.arguments, asked)


def _refuse(name: str, *_: object) -> Any:
    raise TypeError(f"{name} inside an argument")


def quoted(text: str) -> str:
    """A text as a shell takes it, in double quotes where these are enough: expressions hold single ones."""
    return shlex.quote(text) if set(text) & set('"$`\\\\!') else f'"{text}"'
