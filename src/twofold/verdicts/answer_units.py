"""The unit of what an expression computes: from the names of figures, and from the table of quantities."""

import ast
import re
from collections.abc import Mapping
from types import MappingProxyType

from twofold.verdicts.language import parse
from twofold.verdicts.units import NAMED

# How names of figures end -> the unit that a reader knows; what is not here is a count or a ratio.
WORDS: Mapping[str, str] = MappingProxyType(
    {
        "s": "s", "h": "h", "bytes": "B", "bit": "bit", "flops": "FLOP", "w": "W", "j": "J", "kwh": "kWh",
        "usd": "USD", "tokens": "tok", "mtok": "Mtok", "tb": "TB", "requests": "requests", "m": "m",
        "deg": "deg", "gco2": "gCO2", "l": "l", "months": "months", "years": "years", "days": "d",
    }
)  # fmt: skip
ENDING = re.compile(
    rf"(?:^|_)(?P<what>{'|'.join(WORDS)})(?:_per_(?P<per>[a-z0-9]+(?:_h)?))?(?:_p\d+|_max|_min|_mean)?$"
)
# Quantities whose names do not say it.
QUANTITY_UNITS: Mapping[str, str] = MappingProxyType(
    {
        "list_price": "USD/accelerator-h", "provider_price": "USD/accelerator-h", "hardware_price": "USD",
        "part_price": "USD", "rtt": "s", "distance": "m", "time_for_flops": "s", "least_training_memory": "B",
        "checkpoint": "B", "training_state": "B", "optimizer_state": "B", "activations": "B", "kv_cache": "B",
        "kv_cache_without_groups": "B", "weights": "B", "sent_per_token": "B", "static_tokens_per_s": "tok/s",
        "ridge": "FLOP/B", "node_draw": "W", "fabric_usd": "USD/accelerator", "bought_usd": "USD/accelerator",
    }
)  # fmt: skip
OF_FIRST = frozenset({"min", "max", "abs", "round"})


def unit_of_name(name: str) -> str:
    """The unit that the name of a figure says; "" for counts, shares and names.

    >>> unit_of_name("tdp_w"), unit_of_name("bf16_flops_per_s"), unit_of_name("ttft_s_p95")
    ('W', 'FLOP/s', 's')
    """
    found = ENDING.search(name)
    if not found:
        return ""
    per = found["per"]
    if per is None:
        return WORDS[found["what"]]
    return f"{WORDS[found['what']]}/{WORDS.get(per, per.replace('_', '-'))}"


def unit_of_expression(text: str) -> str:
    """The unit of the number that an expression comes to; "" where it has none, or none that follows.

    >>> unit_of_expression("2 * catalog('L4').tdp_w"), unit_of_expression("checkpoint('llama-3.1-8b') / GB")
    ('W', 'GB')
    """
    return _unit(parse(text))


def _unit(node: ast.expr) -> str:
    match node:
        case ast.Attribute():
            return unit_of_name(node.attr)
        case ast.Call(func=ast.Name(id=name)):
            if name in OF_FIRST:
                return _unit(node.args[0]) if node.args else ""
            return QUANTITY_UNITS.get(name, unit_of_name(name))
        case ast.UnaryOp(op=ast.USub()):
            return _unit(node.operand)
        case ast.BinOp():
            return _calculated(node)
    return ""


def _calculated(node: ast.BinOp) -> str:
    left, right = _unit(node.left), _unit(node.right)
    if isinstance(node.op, (ast.Add, ast.Sub)):
        return left if left == right else ""
    if isinstance(node.op, ast.Div):
        if isinstance(node.right, ast.Name) and node.right.id in NAMED:
            return node.right.id  # so many of it
        return "" if right else left
    if left and right:
        return ""
    return left or right
