"""Where keys are used, and how many hardware security modules hold them."""

from collections.abc import Sequence
from math import ceil

from twofold.catalog import Catalog, KeyPoint
from twofold.contracts.results import Enclave, KeyPlan, KeyUse
from twofold.core import DAY_S, YEAR_S
from twofold.facility.compliance_regimes import asks, figure_of
from twofold.facility.compliance_system import STAGING, RuledSystem

RELEASES_A_YEAR = 52.0
OFFLINE = frozenset({"il5", "air-gapped"})  # regimes whose root never is online


def keys_of(system: RuledSystem, enclaves: Sequence[Enclave], catalog: Catalog) -> KeyPlan:
    """The points of table `key_uses` that a regime asks for, and the modules for them.

    Formula  modules = clusters × max(least, ⌈rate / clusters / rate of one⌉ + 1)
    Why      One more than the load needs, so that a module may fail at the peak; never fewer than a cluster
             needs to be available.
    Source   tables key_uses and compliance_figures.
    """
    halves = {"any", *(fleet.half for fleet in system.fleets)}
    points = tuple(
        KeyUse(row.name, row.protects, row.standard, row.evidence, _rate(row, system, enclaves, catalog))
        for row in catalog.rows(KeyPoint)
        if row.half in halves and asks(system.regime) & set(row.regimes.split())
    )
    rate_per_s = sum(point.operations_per_s for point in points)
    one = figure_of(catalog, "hsm", "RSA-2048 signatures of one module").value
    least = int(figure_of(catalog, "hsm", "modules of a cluster, at least").value)
    clusters = len(clusters_of(system, enclaves))
    each = max(least, ceil(rate_per_s / clusters / one) + 1)
    is_offline = system.regime.name in OFFLINE or system.regime.closed
    offline = int(figure_of(catalog, "hsm", "offline modules").value) if is_offline else 0
    kind = "site" if system.regime.hsm_per == "site" else "enclave"
    plural = "s" if clusters > 1 else ""
    peak = f"{rate_per_s:,.0f}" if rate_per_s >= 100 else f"{rate_per_s:.3g}"
    reason = f"{each} in each of {clusters} {kind}{plural}, peak {peak}/s"
    return KeyPlan(points, rate_per_s, one, clusters, clusters * each, offline, reason)


def clusters_of(system: RuledSystem, enclaves: Sequence[Enclave]) -> tuple[str, ...]:
    """The place, rented or owned, of each cluster of modules: by site, or by enclave."""
    inside = [enclave for enclave in enclaves if enclave.name != STAGING]
    if system.regime.hsm_per == "site":
        return (inside[-1].place,) * system.site_count
    return tuple(enclave.place for enclave in inside)


def _rate(point: KeyPoint, system: RuledSystem, enclaves: Sequence[Enclave], catalog: Catalog) -> float:
    """Operations a second of a point at the peak."""
    start_s = figure_of(catalog, "hsm", "window of a fleet's start").value
    update_s = figure_of(catalog, "transfer", "days between updates").value * DAY_S
    training = sum(fleet.node_count for fleet in system.fleets if fleet.half == "training")
    checkpoint_s = system.checkpoint_interval_s or YEAR_S
    per_s = {
        "year": 1 / YEAR_S,
        "day": 1 / DAY_S,
        "release": RELEASES_A_YEAR / YEAR_S,
        "transfer": 1 / update_s,
        "enclave_s": float(len(enclaves)),
        "node_start": system.nodes_count() / start_s,
        "checkpoint_node": training / checkpoint_s,
        "request": system.peak_requests_per_s,
    }
    return point.operations * per_s[point.per]
