"""The language of predicates: comparisons of named quantities, `catalog('L4').tdp_w in 300..450`.

It is a small part of Python's grammar, read by `ast` and walked here; nothing is compiled or executed. Names
are case variables, units, thresholds and the ends of the claim's own range; calls reach the table of
quantities alone; attributes reach the public fields and properties of what these return.
The unit of what an expression computes follows from the names of figures, and from the table of quantities.
"""

import ast
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any

from twofold.core.errors import UnknownNameError, ValueRefusedError
from twofold.verdicts.units import NAMED, thresholds
from twofold.verdicts.world import MissingFigure

LENGTH_MAX = 2000
DEPTH_MAX = 40
PERCENT = re.compile(r"(?<!\w)(\d+(?:\.\d+)?)\s*%")
RANGE = re.compile(r"\bin\s+([^\s()'\"]+?)\.\.([^\s()'\"]+)")
TEXT = re.compile(r"('[^']*'|\"[^\"]*\")")
SIMPLE: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
FUNCTIONS: Mapping[str, Callable[..., Any]] = {"min": min, "max": max, "abs": abs, "round": round}
ALLOWED = (
    ast.Expression, ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.USub, ast.BinOp, ast.Compare,
    ast.In, ast.NotIn, ast.Call, ast.keyword, ast.Attribute, ast.Name, ast.Load, ast.Constant, ast.List,
    ast.Tuple, *SIMPLE,
)  # fmt: skip

Call = Callable[[str, Sequence[Any], Mapping[str, Any]], Any]
"""Asks a quantity by name: the evaluator knows no quantity itself."""


def parse(text: str) -> ast.expr:
    """The expression as a tree of nothing but what the language has.

    `15%` is 0.15, and `in A..B` a closed interval. Raises ValueRefusedError with what is wrong.
    """
    if len(text) > LENGTH_MAX:
        raise ValueRefusedError(f"an expression of {len(text):,} letters is too long")
    # Percentages and ranges become what Python writes; texts are not touched.
    parts = [
        part if part[:1] in "'\"" else RANGE.sub(r"in (\1, \2)", PERCENT.sub(r"\1/100", part))
        for part in TEXT.split(text.strip())
    ]
    try:
        tree = ast.parse("".join(parts), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ValueRefusedError(
            f"`{text[:80]}` is not an expression", hint="write for example `catalog('L4').tdp_w in 300..450`"
        ) from None
    level: list[ast.AST] = [tree]
    for _ in range(DEPTH_MAX):  # without recursion
        level = [child for node in level for child in ast.iter_child_nodes(node)]
    if level:
        raise ValueRefusedError(f"`{text[:80]}` is nested deeper than {DEPTH_MAX}")
    for node in ast.walk(tree):
        if not isinstance(node, ALLOWED):
            raise ValueRefusedError(f"`{type(node).__name__}` is not part of the language of claims")
        if isinstance(node, ast.Call) and not isinstance(node.func, ast.Name):
            raise ValueRefusedError("only quantities can be called, by their names")
        if isinstance(node, ast.Attribute) and node.attr.startswith("_"):
            raise ValueRefusedError(f"`{node.attr}` is not public")
        if isinstance(node, ast.Constant) and not isinstance(node.value, (int, float, str, bool)):
            raise ValueRefusedError(f"`{node.value!r}` is neither a number nor a text")
    return tree.body


def names_in(tree: ast.expr) -> set[str]:
    """Free names of an expression: variables, units and quantities."""
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def calls_in(tree: ast.expr) -> list[ast.Call]:
    """Quantities that an expression asks, the outermost first."""
    return [node for node in ast.walk(tree) if isinstance(node, ast.Call)]


def subject(tree: ast.expr) -> ast.expr:
    """What an expression is about: the left side of its first comparison, else the whole of it.

    Where the left side is written out, as in `'ConnectX' in node('DGX-B200').nic_type`, the right one.
    """
    node = tree
    while True:
        if isinstance(node, ast.BoolOp):
            node = node.values[0]
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            node = node.operand
        elif isinstance(node, ast.Compare):
            node = node.comparators[0] if isinstance(node.left, ast.Constant) else node.left
        else:
            return node


def bound(tree: ast.expr, variables: Mapping[str, Any]) -> str:
    """The expression as text with its variables written out."""

    class Writer(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.expr:
            return ast.Constant(variables[node.id]) if node.id in variables else node

    return ast.unparse(Writer().visit(ast.parse(ast.unparse(tree), mode="eval")))


def evaluate(tree: ast.expr, variables: Mapping[str, Any], call: Call) -> Any:
    """The value of an expression. What does not exist is None, through arithmetic, comparisons and `not`."""
    return _Walk(variables, call).value(tree)


def judge_expression(tree: ast.expr, variables: Mapping[str, Any], call: Call) -> tuple[bool, Any]:
    """Whether a predicate holds, and the quantity that its first comparison is about.

    A comparison with what does not exist is neither true nor false, so it does not hold.
    """
    return bool(evaluate(tree, variables, call)), evaluate(subject(tree), variables, call)


@dataclass(slots=True)
class _Walk:
    variables: Mapping[str, Any]
    call: Call

    def value(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant():
                return node.value
            case ast.Name():
                return self._named(node.id)
            case ast.List() | ast.Tuple():
                return tuple(self.value(each) for each in node.elts)
            case ast.Call(func=ast.Name(id=name)):
                arguments = [self.value(each) for each in node.args]
                named = {each.arg: self.value(each.value) for each in node.keywords if each.arg}
                if name in FUNCTIONS:
                    return None if None in arguments else FUNCTIONS[name](*arguments)
                return self.call(name, arguments, named)
            case ast.Attribute():
                return _attribute(self.value(node.value), node.attr)
            case ast.UnaryOp():
                operand = self.value(node.operand)
                if isinstance(node.op, ast.Not):
                    return None if operand is None else not operand
                return None if operand is None else -operand
            case ast.BinOp():
                return self._calculated(node)
            case ast.BoolOp():
                return self._joined(node.values, decides=isinstance(node.op, ast.Or))
            case ast.Compare():
                return self._compared(node)
        raise AssertionError(f"parse lets no {type(node).__name__} through")

    def _named(self, name: str) -> Any:
        if name in self.variables:
            return self.variables[name]
        if name in NAMED:
            return NAMED[name]
        if name in thresholds():
            return thresholds()[name]
        known = [*self.variables, *NAMED, *thresholds()]
        near = get_close_matches(name, known, n=1)
        hint = f"did you mean `{near[0]}`?" if near else "names: " + ", ".join(known)
        raise UnknownNameError(f"`{name}` is neither a variable, a unit nor a threshold", hint=hint)

    def _calculated(self, node: ast.BinOp) -> Any:
        left, right, function = self.value(node.left), self.value(node.right), SIMPLE[type(node.op)]
        if left is None or right is None:
            return None
        if not (isinstance(left, (int, float)) and isinstance(right, (int, float))):
            raise ValueRefusedError(f"cannot calculate with a {_kind(left)} and a {_kind(right)}")
        return None if right == 0 and function is operator.truediv else function(left, right)

    def _joined(self, nodes: Sequence[ast.expr], *, decides: bool) -> bool | None:
        """`or` is decided by one that is true, `and` by one that is false; else None if any part is None."""
        unknown = False
        for node in nodes:
            part = self.value(node)
            if part is None:
                unknown = True
            elif bool(part) == decides:
                return decides
        return None if unknown else not decides

    def _compared(self, node: ast.Compare) -> bool | None:
        left = self.value(node.left)
        for op, right_node in zip(node.ops, node.comparators, strict=True):
            right = self.value(right_node)
            if left is None or right is None:
                return None
            if isinstance(op, (ast.In, ast.NotIn)):
                if isinstance(right_node, ast.Tuple):  # a closed interval, whose missing ends are open
                    low, high = right
                    inside = (low is None or left >= low) and (high is None or left <= high)
                else:
                    inside = left in right
                holds = inside == isinstance(op, ast.In)
            else:
                ordered = not isinstance(op, (ast.Eq, ast.NotEq))
                whole = is_dataclass(left) or is_dataclass(right)
                if ordered and (isinstance(left, str) != isinstance(right, str) or whole):
                    raise ValueRefusedError(f"cannot compare a {_kind(left)} with a {_kind(right)}")
                holds = SIMPLE[type(op)](left, right)
            if not holds:
                return False
            left = right
        return True


def _attribute(owner: Any, name: str) -> Any:
    if owner is None:
        return None
    found = getattr(owner, name, _attribute) if is_dataclass(owner) else _attribute
    if callable(found):
        raise UnknownNameError(f"`{type(owner).__name__}` has no figure `{name}`")
    if found is None and "usd" in name:
        raise MissingFigure("no list price")
    return found


def _kind(value: Any) -> str:
    return "number" if isinstance(value, (int, float)) else "text" if isinstance(value, str) else "whole row"


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


def unit_of_name(name: str) -> str:
    """The unit that the name of a figure says; "" for counts, shares and names.

    >>> unit_of_name("tdp_w"), unit_of_name("bf16_flops_per_s"), unit_of_name("ttft_s_p95")
    ('W', 'FLOP/s', 's')
    """
    found = ENDING.search(name)
    if not found:
        return ""
    unit, per = WORDS[found["what"]], found["per"]
    return f"{unit}/{WORDS.get(per, per.replace('_', '-'))}" if per else unit


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
            if name in FUNCTIONS:  # the unit of what it takes
                return _unit(node.args[0]) if node.args else ""
            return QUANTITY_UNITS.get(name, unit_of_name(name))
        case ast.UnaryOp(op=ast.USub()):
            return _unit(node.operand)
        case ast.BinOp(left=first, op=op, right=second):
            left, right = _unit(first), _unit(second)
            if isinstance(op, (ast.Add, ast.Sub)):
                return left if left == right else ""
            if isinstance(op, ast.Div):
                if isinstance(second, ast.Name) and second.id in NAMED:
                    return second.id  # so many of it
                return "" if right else left
            return "" if left and right else left or right
    return ""
