import numpy as np
import pytest

from twofold.core import InputError
from twofold.training.sizes import Machine, search_sizes

TOKENS = 2e11


@pytest.fixture
def machines(make_cluster, stack) -> list[Machine]:
    offers = [("H100-80GB", 64, 2.5), ("H100-80GB", 128, 2.5), ("A100-80GB", 128, 1.2), ("H100-80GB", 8, 2.5)]
    return [
        Machine(f"{count} × {name}", make_cluster(name, count), stack, price) for name, count, price in offers
    ]


def test_the_cheapest_that_meets_the_deadline_is_chosen(make_job, machines) -> None:
    rows = search_sizes(make_job(), machines, TOKENS, deadline_s=40 * 86400)
    chosen = [row for row in rows if row.verdict == "chosen"]
    meeting = [row for row in rows if row.wall_s <= 40 * 86400]
    assert len(chosen) == 1 and chosen[0].cost_usd == min(row.cost_usd for row in meeting)
    assert len(rows) == len(machines)


def test_a_tighter_deadline_never_costs_less(make_job, machines) -> None:
    costs = []
    for days in (200, 30, 15, 10):
        rows = search_sizes(make_job(), machines, TOKENS, deadline_s=days * 86400)
        costs.append(next((row.cost_usd for row in rows if row.verdict == "chosen"), np.inf))
    assert costs == sorted(costs)


def test_losers_say_why(make_job, machines) -> None:
    rows = search_sizes(make_job(), machines, TOKENS, deadline_s=86400, budget_usd=1)
    assert {row.verdict for row in rows} <= {"deadline", "budget", "memory"}
    assert rows[3].verdict in ("memory", "deadline")
    cheap = search_sizes(make_job(), machines, TOKENS, budget_usd=1)
    assert {row.verdict for row in cheap} <= {"budget", "memory"}


def test_accelerator_hours_are_wall_time_times_accelerators(make_job, machines) -> None:
    for row in search_sizes(make_job(), machines[:2], TOKENS, overhead_factor=1.2):
        steps = np.ceil(TOKENS / make_job().tokens_per_step)
        assert row.wall_s == pytest.approx(row.candidate.step_s * steps * 1.2)
        assert row.accelerator_h == pytest.approx(row.wall_s / 3600 * row.machine.cluster.accelerator_count)
        assert row.cost_usd == pytest.approx(row.accelerator_h * 2.5)


def test_a_run_without_tokens_is_refused(make_job, machines) -> None:
    with pytest.raises(InputError, match="tokens"):
        search_sizes(make_job(), machines, 0)
