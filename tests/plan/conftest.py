"""The example specs planned once for all tests of this room."""

import contextlib
import os
from collections.abc import Callable
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from twofold.catalog import Catalog, load_catalog
from twofold.contracts import Plan, parse_spec, plan_to_dict, read_spec
from twofold.core import InfeasibleError
from twofold.perf import Constants, load_constants
from twofold.plan import PlanOptions, build_plan

ROOT = Path(__file__).parents[2]
NAMES = ("assistant", "moe", "finetune", "portfolio", "laptop")
AS_ASKED = PlanOptions(today=date(2026, 11, 21))  # as `ask` plans, so that both take what one made


@pytest.fixture(scope="session")
def planned() -> Callable[[str], Plan]:
    """Plans a spec's text; the same text once."""

    @cache
    def plan(text: str) -> Plan:
        spec = parse_spec(text, "twofold.yaml")
        return build_plan(spec, load_catalog(), load_constants(), spec_digest="0")

    return plan


@pytest.fixture
def refused(planned: Callable[[str], Plan]) -> Callable[[str], InfeasibleError]:
    """The error that a spec's text raises."""

    def refusal(text: str) -> InfeasibleError:
        with pytest.raises(InfeasibleError) as caught:
            planned(text)
        return caught.value

    return refusal


@pytest.fixture(scope="session")
def catalog() -> Catalog:
    return load_catalog()


@pytest.fixture(scope="session")
def constants() -> Constants:
    return load_constants()


@pytest.fixture(scope="session")
def examples() -> dict[str, Plan]:
    """Every example's plan by its name, as the command line makes it."""
    # Two processes that begin at once each make half of them.
    backwards = os.environ.get("PYTEST_XDIST_WORKER") == "gw1"
    plans = {}
    with contextlib.chdir(ROOT):
        for name in reversed(NAMES) if backwards else NAMES:
            spec = read_spec(Path("examples", name, "twofold.yaml"))
            plans[name] = build_plan(
                spec, load_catalog(), load_constants(), spec_digest="0", options=AS_ASKED
            )
    return {name: plans[name] for name in NAMES}


@pytest.fixture(scope="session")
def example_data(examples: dict[str, Plan]) -> dict[str, dict[str, Any]]:
    """The same as plain data, as `plan --json` prints them."""
    return {name: plan_to_dict(plan) for name, plan in examples.items()}
