"""Small rehearsals that tests of pictures and pages look at, each made once."""

from functools import cache
from pathlib import Path

from twofold.app.simulating import SimulateOptions, simulate
from twofold.contracts.results.simulated import Simulation

ROOT = Path(__file__).parents[1]
SERVING = {
    "as-planned": "examples/laptop",
    "bad-canary": "examples/laptop",
    "replica-crash": "examples/laptop",
    "overload": "examples/laptop",
}
CLUSTER = {"run-alone": "small-run.yaml", "training-week": "small-run.yaml"}


@cache
def rehearsal(scenario: str) -> Simulation:
    """The simulation of one of these scenarios, with seed 0."""
    where = SERVING.get(scenario) or f"tests/requirements/specs/{CLUSTER[scenario]}"
    return simulate(ROOT / where, SimulateOptions(scenario)).data


def rehearsals() -> dict[str, Simulation]:
    """All of them, by scenario."""
    return {name: rehearsal(name) for name in (*SERVING, *CLUSTER)}
