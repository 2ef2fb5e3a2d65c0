"""Coverage of ranges whose errors saw nothing of what they are held against."""

import numpy as np

from fits.nested import by_figure, held, pairs_of
from fits.ranges import Errors


def errors(source: str, *logs: float) -> Errors:
    scope = {"arch": "dense", "known": "parts"}
    told = (scope,) * len(logs), np.full(len(logs), source), np.full(len(logs), "0")
    return Errors(np.array(logs), *told)


def together(*each: Errors) -> Errors:
    scope = tuple(scope for one in each for scope in one.scope)
    columns = (np.concatenate([getattr(one, name) for one in each]) for name in ("log", "source", "fold"))
    log, source, fold = columns
    return Errors(log, scope, source, fold)


def test_every_two_sources_are_left_out_together() -> None:
    assert list(pairs_of(np.array(["b", "a", "c", "a"]))) == [("a", "b"), ("a", "c"), ("b", "c")]


def test_a_source_is_held_against_what_others_showed_without_it() -> None:
    quiet = [errors(name, -0.1, -0.05, 0.05, 0.1) for name in "abc"]
    loud = errors("d", -0.4, -0.3, 0.3, 0.4)
    plain = held("step", together(*quiet, loud), {})
    assert "sources  75.0%" in plain  # the loud one lies outside what the quiet ones show
    told = {"d": together(*(errors(name, -0.5, -0.45, 0.45, 0.5) for name in "abc"))}
    assert "sources 100.0%" in held("step", together(*quiet, loud), told)


def test_memory_keeps_other_ranges() -> None:
    assert [name for name, _ in by_figure({"step": errors("a", 0.1), "memory": errors("a", 0.1)})] == ["step"]
