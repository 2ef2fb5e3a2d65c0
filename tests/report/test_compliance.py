"""The block about rules: at most ten lines of a hundred columns, whatever the regime."""

from dataclasses import replace

import pytest

from twofold.building.compliance import compliance_of
from twofold.building.compliance_costs import Rent
from twofold.building.compliance_system import RuledFleet, RuledSystem
from twofold.catalog.catalog import load_catalog
from twofold.catalog.types import Regime
from twofold.contracts.results.compliance import Compliance
from twofold.contracts.spec.supply import ComplianceSpec
from twofold.report.compliance import bill_blocks, compliance_lines, more_compliance_lines
from twofold.report.lines import WIDTH

CATALOG = load_catalog()
RENT = Rent("run", 70000.0, 8.0, 6.0, 2.0, "gov", "commercial", "anybody", "2026-07-20")


def rules(regime: str, *, nodes: int = 8, rate_per_s: float = 10.0) -> Compliance:
    fleets = tuple(
        RuledFleet(half, "DGX-H100", nodes, 8 * nodes, regime != "air-gapped")
        for half in ("training", "serving")
    )
    system = RuledSystem(
        CATALOG.named(Regime)[regime],
        fleets,
        1,
        200,
        rate_per_s,
        3 * rate_per_s,
        1e3,
        2e2,
        1.0,
        3600.0,
        1e11,
        1e12,
    )
    spec = ComplianceSpec(regime=regime, cites=("EO 14110",))  # type: ignore[arg-type]  # a name of the table
    return compliance_of(spec, system, (RENT,), 1e6, CATALOG, "2026-11-22")


@pytest.mark.parametrize("regime", sorted(CATALOG.named(Regime)))
@pytest.mark.parametrize(("nodes", "rate_per_s"), [(1, 0.01), (500, 2e4)])
def test_the_block_fits_its_place(regime: str, nodes: int, rate_per_s: float) -> None:
    lines = compliance_lines(rules(regime, nodes=nodes, rate_per_s=rate_per_s))
    assert len(lines) <= 11
    assert max(map(len, lines)) <= WIDTH


@pytest.mark.parametrize("regime", sorted(CATALOG.named(Regime)))
def test_the_tables_of_details_hold_every_line_and_fit(regime: str) -> None:
    part = rules(regime)
    blocks = bill_blocks(part)
    names = "MORE RULES BILL OF RULES ENCLAVES KEYS OTHERWISE CONTROLS MANDATES"
    assert " ".join(block[0] for block in blocks) == names
    assert max(len(line) for block in blocks for line in block) <= WIDTH
    text = "\n".join(blocks[1])
    assert len(part.keys.points) < len(blocks[3])  # a row for every point, under two lines of heading
    assert all(f"{item.line.total_usd:,.2f}" in text for item in part.items)


def test_the_rest_of_the_total_is_called_what_it_is_and_not_another_plan() -> None:
    screen = " ".join(compliance_lines(replace(rules("fedramp-high"), without_usd=1e6)))
    assert "with the rules, 1.0 M$ less the lines above" in " ".join(screen.split())


def test_a_plan_without_prices_says_so() -> None:
    part = replace(rules("il5"), uplift=None, sizes=())
    assert any("no price of the machines" in line for line in compliance_lines(part))


def test_a_latency_that_the_log_breaks_is_told() -> None:
    part = rules("il5")
    slow = replace(part.logs, synchronous_fits=False)
    assert "over 50 ms" in "\n".join(compliance_lines(replace(part, logs=slow)))
    assert "logs" not in "\n".join(compliance_lines(part))
    assert "within 50 ms" in "\n".join(more_compliance_lines(part))
