"""Paths into a plan's JSON: `training.pretrain.step_s`, entries of arrays addressed by their name."""

import difflib
from collections.abc import Iterator
from types import MappingProxyType
from typing import Any

from twofold.core.errors import InputError

# What names an entry of an array, the first that it has. Derivations are reached through `explain` instead.
_NAMES = ("name", "metric", "resource", "reason", "what", "accelerator_count")
_ESTIMATE = {"value", "low", "high", "unit", "source"}
# How the last name of a path ends -> the unit that its number is shown with; the first that fits.
_UNITS = MappingProxyType(
    {
        "_fraction": "fraction",
        "probability": "probability",
        "usd_per_1k_output_tokens": "USD",
        "usd_per_1k_tokens": "USD",
        "usd_per_accelerator_h": "USD/h",
        "usd_per_h_per_tb_s": "USD/h",
        "usd_per_h": "USD/h",
        "usd_per_year": "USD",
        "usd_per_month": "USD",
        "w_per_s": "W/s",
        "memory_bytes": "memory B",
        "memory_capacity_bytes": "memory B",
        "_bytes_per_s": "B/s",
        "_bytes": "B",
        "_tokens_per_s": "tok/s",
        "flops_per_s": "FLOP/s",
        "_per_s": "1/s",
        "_s": "s",
        "_usd": "USD",
        ".usd": "USD",
        "accelerator_h": "accelerator-h",
        "flops": "FLOP",
        "_tokens": "tok",
    }
)


def unit_of(path: str) -> str | None:
    """The unit that a plain number at a path is shown with, by its name; None where the name has none."""
    return next((unit for ending, unit in _UNITS.items() if path.endswith(ending)), None)


def is_estimate(node: Any) -> bool:
    """Whether this part of a plan is a number with its range."""
    return isinstance(node, dict) and node.keys() == _ESTIMATE


def children(node: Any) -> tuple[tuple[str, Any], ...]:
    """The parts of a node with the key that each is addressed by; none for a leaf."""
    if is_estimate(node):
        return ()
    if isinstance(node, dict):
        return tuple((key, item) for key, item in node.items() if key != "derivations")
    if not isinstance(node, list):
        return ()
    keyed: dict[str, Any] = {}
    for index, item in enumerate(node):
        is_pair = isinstance(item, list) and len(item) == 2  # of the defaults: path, value
        key, held = item if is_pair else (_entry_key(item, index), item)
        keyed[key if key not in keyed else f"{key}#{index}"] = held
    return tuple(keyed.items())


def _entry_key(item: Any, index: int) -> str:
    if isinstance(item, dict):
        if "fleet" in item:  # a cell of the 2×2
            return f"{item['half']}.{item['name']}.{item['fleet']}"
        return str(next((item[key] for key in _NAMES if key in item), index))
    return str(index)


def leaves(node: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every leaf below a node with its path, in order. An estimate is a leaf, an empty part too."""
    parts = children(node)
    if not parts:
        yield path, node
    for key, item in parts:
        yield from leaves(item, f"{path}.{key}" if path else key)


def resolve(plan: dict[str, Any], path: str) -> Any:
    """What stands at a path. Raises InputError with the nearest names and what there is to choose from."""
    node: Any = plan
    rest, walked = path, ""
    while rest:
        # Names may hold dots (`llama-3.1`): the longest child that the rest begins with is meant.
        fitting = [key for key, _ in children(node) if rest == key or rest.startswith(f"{key}.")]
        if not fitting:
            raise _unknown(node, path, walked, rest)
        key = max(fitting, key=len)
        node = dict(children(node))[key]
        walked = f"{walked}.{key}" if walked else key
        rest = rest[len(key) + 1 :]
    return node


def _unknown(node: Any, path: str, walked: str, rest: str) -> InputError:
    names = [key for key, _ in children(node)]
    where = f"`{walked}`" if walked else "this plan"
    if not names:
        return InputError(f"`{path}` does not lead anywhere", hint=f"`{walked}` is a single value")
    near = difflib.get_close_matches(rest.split(".")[0], names, n=1) or difflib.get_close_matches(
        rest, names, n=1
    )
    start = f"{walked}." if walked else ""
    guess = f"did you mean `{start}{near[0]}`? " if near else ""
    return InputError(
        f"`{path}` is not a path of this plan", hint=f"{guess}{where} holds: {', '.join(names)}"
    )
