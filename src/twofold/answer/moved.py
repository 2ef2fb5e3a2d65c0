"""What a number rests on, found by moving every number of hardware and software a little, in one pass."""

from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twofold.answer.calibrated import Software
from twofold.core import record
from twofold.perf.types import Cluster, one
from twofold.training.stack import Stack

MOVE = 0.01  # up and down, as a share of the number; of 1 where it is 0
NOTHING = 1e-9  # what rounding may move a number by, as a share of it
WEAK = 0.01  # of the strongest: further down what it moves may be lost in rounding
# They choose which formula holds, and are no numbers in it: how stages are filled, whether attention is
# fused, how many accelerators share a node and its fast links.
SWITCHES = ("stage_cost_factor", "softmax_passes_factor", "node_size", "domain_size")


def moved(cluster: Cluster, software: Software) -> tuple[Cluster, Software, tuple[str, ...]]:
    """Both with a leading axis: first as they are, then with each number up and down alone; and its names.

    A number that differs by format is `field.format`; software's are named as constants are.
    """
    prefix = "training_" if isinstance(software, Stack) else "serving_"
    parts: dict[str, Any] = {"": cluster.device, " ": cluster.network, prefix: software}
    numbers = [
        (start, field, fmt, value) for start, part in parts.items() for field, fmt, value in _numbers(part)
    ]
    changed: dict[str, dict[str, Any]] = {start: {} for start in parts}
    for index, (start, field, fmt, value) in enumerate(numbers):
        column = np.full((1 + 2 * len(numbers), 1), value)
        by = MOVE * (value or 1.0)
        column[1 + 2 * index], column[2 + 2 * index] = value + by, value - by if value else by
        if fmt:
            changed[start].setdefault(field, {})[fmt] = column
        else:
            changed[start][field] = column
    device, network, own = (replace(part, **changed[start]) for start, part in parts.items())
    names = (f"{start.strip()}{field}{'.' if fmt else ''}{fmt}" for start, field, fmt, _ in numbers)
    return replace(cluster, device=device, network=network), own, tuple(names)


def _numbers(part: Any) -> Iterator[tuple[str, str, float]]:
    """Field, format if there is one for each, and value of every number that is no switch."""
    for field in fields(part):
        value = getattr(part, field.name)
        if isinstance(value, Mapping):
            yield from ((field.name, fmt, one(each)) for fmt, each in value.items())
        elif field.name not in SWITCHES and not isinstance(value, str | frozenset):
            yield field.name, "", one(value)


def cited(book: record.Book, names: tuple[str, ...]) -> record.Book:
    """Notes that were taken under `moved`, as of the middle, with just the inputs that they rest on.

    A noted number is an input where whatever clearly moves it moves the whole; what else moves the whole is
    an input itself, the strongest first. So every tree ends in what moves its number, and in nothing else.
    """
    moves = {name: _moves(kept.value, names) for name, kept in book.items()}
    found: record.Book = {}
    for name, kept in book.items():
        own = moves[name]
        parts = [each for each in kept.inputs if each not in book or one(book[each].value)]
        parts = [each for each in parts if _strong(moves.get(each, {})) <= own.keys()]
        told = {each for part in parts for each in moves.get(part, ())}
        rest = sorted(own.keys() - told, key=lambda each: (-float(f"{own[each]:.3g}"), each))
        found[name] = record.Note(one(kept.value), kept.formula, (*parts, *rest))
    return found


def _strong(moves: Mapping[str, float]) -> set[str]:
    """What moves a number by more than a hundredth of what moves it most."""
    return {name for name, much in moves.items() if much > WEAK * max(moves.values())}


def _moves(value: Any, names: tuple[str, ...]) -> dict[str, float]:
    """What moves a value, and by how much, as a share of it."""
    rows: NDArray[np.float64] = np.ravel(np.asarray(value, float))
    if rows.size == 1 or not rows[0]:
        return {}
    by = np.max(np.abs(rows[1:] / rows[0] - 1.0).reshape(-1, 2), axis=1)
    return {name: float(much) for name, much in zip(names, by, strict=True) if not much <= NOTHING}
