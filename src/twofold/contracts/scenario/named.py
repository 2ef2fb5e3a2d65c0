"""Scenarios by name: those that come with the package, and files of the user's own."""

from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from importlib.resources import files
from pathlib import Path

from twofold.contracts import did_you_mean
from twofold.contracts.scenario.scenario import Reading, Scenario, parse_scenario, read_scenario
from twofold.core import UnknownNameError

FOLDER = "scenarios"  # of the package


@cache
def scenario_names() -> tuple[str, ...]:
    """The names of the packaged scenarios."""
    found = (path.name for path in files("twofold").joinpath(FOLDER).iterdir())
    return tuple(sorted(name.removesuffix(".yaml") for name in found if name.endswith(".yaml")))


def find_scenario(
    text: str, classes: Iterable[str] = (), overrides: tuple[tuple[str, str], ...] = ()
) -> Scenario:
    """A packaged scenario by its name, or the one in a file; `NAME:VARIANT` is a variant of it.

    `classes` are those of the service; `overrides` stand for values of the file. Raises UnknownNameError
    where it is neither, InputErrors where the file is wrong.
    """
    name, _, variant = text.partition(":")
    reading = Reading(frozenset(classes), variant=variant, overrides=overrides)
    if name in scenario_names():
        content = files("twofold").joinpath(FOLDER, f"{name}.yaml").read_text("utf-8")
        return parse_scenario(content, f"{name}.yaml", reading)
    path = Path(text)
    if not path.exists() and variant:
        path = Path(name)
    elif variant:
        reading = replace(reading, variant="")  # a file whose name holds the sign
    if path.suffix in (".yaml", ".yml") or path.exists():
        return read_scenario(path, reading)
    hint = did_you_mean(name, scenario_names(), f"a file, or one of: {', '.join(scenario_names())}")
    raise UnknownNameError(f"`{text[:64]}` is not a scenario", hint=hint)
