"""A system for the tests about rules."""

from collections.abc import Callable

import pytest

from twofold.building.compliance_system import RuledFleet, RuledSystem
from twofold.catalog.catalog import load_catalog
from twofold.catalog.types import Regime


def ruled_system(
    regime: str,
    *,
    nodes: int = 8,
    rented: bool = True,
    node: str = "p5.48xlarge",
    halves: tuple[str, ...] = ("training", "serving"),
    rate_per_s: float = 10.0,
    goal_s: float | None = 1.0,
    sites: int = 1,
    provider: str = "aws",
) -> RuledSystem:
    """Nodes of eight accelerators, half of them in each half."""
    share = nodes // len(halves)
    serves = "serving" in halves
    return RuledSystem(
        regime=load_catalog().named(Regime)[regime],
        fleets=tuple(RuledFleet(half, node, share, 8 * share, rented) for half in halves),
        site_count=sites,
        users_count=200,
        requests_per_s=rate_per_s if serves else 0.0,
        peak_requests_per_s=3 * rate_per_s if serves else 0.0,
        input_tokens=1000.0,
        output_tokens=200.0,
        tightest_goal_s=goal_s if serves else None,
        checkpoint_interval_s=3600.0 if "training" in halves else None,
        weights_bytes=140e9,
        data_bytes=1e12,
        providers=(provider,) * sites if rented else (),
    )


@pytest.fixture(scope="session")
def ruled() -> Callable[..., RuledSystem]:
    """A system under a regime: half of its nodes train, half serve."""
    return ruled_system
