"""The one table of named quantities, how they are asked, and the command that reproduces a figure."""

import ast
import inspect
import shlex
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from types import ModuleType
from typing import Any, get_args, get_origin, get_type_hints

import numpy as np

from twofold.core.errors import InfeasibleError, TwofoldError, UnknownNameError, ValueRefusedError
from twofold.verdicts import (
    quantities_catalog,
    quantities_cluster,
    quantities_cost,
    quantities_facility,
    quantities_fleet,
    quantities_rehearsed,
    quantities_serving,
    quantities_training,
    quantities_training_run,
)
from twofold.verdicts.language import bound, calls_in, evaluate, subject
from twofold.verdicts.table import Predicate
from twofold.verdicts.world import Quantity, World

# Functions of the world that quantities share, and none by themselves.
SHARED = {"ask_trains", "carried", "job_of", "replica", "serving_gains", "step_once", "training_gains"}


def _is_quantity(name: str, function: Any, module: ModuleType) -> bool:
    """Whether it is a public function of this module whose first argument is the world."""
    if name.startswith("_") or name in SHARED or getattr(function, "__module__", "") != module.__name__:
        return False
    return inspect.isfunction(function) and next(iter(inspect.signature(function).parameters)) == "world"


QUANTITIES: Mapping[str, Quantity] = {
    name: Quantity(function, getattr(module, "COMMANDS", {}).get(name))
    for module in (
        quantities_catalog,
        quantities_training,
        quantities_training_run,
        quantities_serving,
        quantities_fleet,
        quantities_cost,
        quantities_cluster,
        quantities_rehearsed,
        quantities_facility,
    )
    for name, function in vars(module).items()
    if _is_quantity(name, function, module)
}

MAY_BE_NONE = {"apart", "least", "slow_count", "zero"}
WORDS = {str: "a text", int: "a whole number", float: "a number", bool: "True or False"}
TOO_MANY = 1e30  # no figure that a quantity takes is so large


def ask(world: World, name: str, arguments: Sequence[Any], named: Mapping[str, Any]) -> Any:
    """One quantity of these arguments; None where nothing is feasible. Asked twice, it is computed once."""
    quantity = QUANTITIES.get(name)
    if quantity is None:
        near = get_close_matches(name, QUANTITIES, n=1)
        hint = f"did you mean `{near[0]}`?" if near else "quantities: " + ", ".join(sorted(QUANTITIES))
        raise UnknownNameError(f"`{name}` is not a quantity", hint=hint)
    if None in arguments or None in named.values():
        return None
    given = _checked(name, arguments, named)

    def feasible() -> Any:
        try:
            with np.errstate(all="ignore"):  # what is not finite is shown as none
                return quantity.function(world, **given)
        except InfeasibleError:
            return None
        except (ValueError, ArithmeticError) as error:  # figures that no formula takes: a rate below 0
            raise ValueRefusedError(f"`{name}` has no value for these arguments: {error}") from None

    return world.once((name, *given.items()), feasible)


def _checked(name: str, arguments: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments by name, each of the kind that the quantity takes."""
    signature, hints = _signature(name)
    try:
        found = signature.bind(None, *arguments, **named).arguments
    except TypeError as error:
        raise ValueRefusedError(f"`{name}`: {error}") from None
    given = {key: value for key, value in found.items() if key != "world"}
    for key, value in given.items():
        kinds = get_args(hints[key]) or (hints[key],)
        if not _is_of(hints[key], value):
            is_list = get_origin(hints[key]) is Sequence
            kind = "a list of texts" if is_list else WORDS[next(each for each in kinds if each in WORDS)]
            raise ValueRefusedError(f"`{name}`: `{key}` is not {kind}")
        # Counts begin at 1, except those that may be none; other numbers at 0.
        least = int(int in kinds and key not in MAY_BE_NONE)
        if isinstance(value, (int, float)) and not least <= value < TOO_MANY:
            raise ValueRefusedError(f"`{name}`: no `{key}` of {value:g}")
    return given


@cache
def _signature(name: str) -> tuple[inspect.Signature, dict[str, Any]]:
    function = QUANTITIES[name].function
    return inspect.signature(function), get_type_hints(function)


def _is_of(kind: Any, value: Any) -> bool:
    """Whether a value of an expression is what an argument takes; whole numbers count as any number."""
    if get_origin(kind) is Sequence:
        return isinstance(value, tuple) and all(isinstance(each, str) for each in value)
    kinds = set(get_args(kind) or (kind,))
    if isinstance(value, bool):
        return bool in kinds
    if isinstance(value, str):
        return str in kinds
    if not isinstance(value, (int, float)):
        return False
    whole = int in kinds and float(value).is_integer()
    return float in kinds or whole


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
