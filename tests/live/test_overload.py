"""Overload and a noisy tenant over HTTP, before engines that sleep; tests/policy/gate has them exact.

Margins are wide: whatever else the machine does stretches all times. docs/soak.md has figures of longer runs.
"""

import asyncio
from pathlib import Path

import pytest

pytest.importorskip("uvicorn", reason="needs the extra [live]: `make extras`")
pytest.importorskip("aiohttp", reason="needs the extra [live]: `make extras`")

from tests.soak.overload import E2E_S, TTFT_S, Figures, Overload, beside_a_noisy_one, overloaded

LASTS_S = 6.0
LATE_S = 0.5  # that a busy machine may add to anything


def test_r_059_at_half_as_much_again_and_three_times_the_load_the_accepted_are_in_time_and_the_rest_counted(
    tmp_path: Path,
) -> None:
    found = asyncio.run(overloaded(tmp_path, LASTS_S, (1.0, 1.5, 3.0)))
    knee = found[1.0]
    for ratio in (1.5, 3.0):
        over = found[ratio]
        assert over.refused_count > 0 and over.accepted_count >= 0.8 * knee.accepted_count > 0
        assert over.ttft_s_p95 < min(TTFT_S, knee.ttft_s_p95) + LATE_S
        assert over.e2e_s_p95 < min(E2E_S, knee.e2e_s_p95) + LATE_S
    assert found[3.0].refused_count > found[3.0].accepted_count


def test_r_058_a_noisy_tenant_is_capped_and_takes_no_other_its_share(tmp_path: Path) -> None:
    alone, quiet, noisy = asyncio.run(beside_a_noisy_one(tmp_path, LASTS_S))
    assert noisy.refused_count > noisy.accepted_count > 0
    assert quiet.accepted_count == alone.accepted_count and not quiet.refused_count
    assert quiet.e2e_s_p95 < 1.1 * alone.e2e_s_p95 + LATE_S
    assert quiet.ttft_s_p95 < 1.1 * alone.ttft_s_p95 + LATE_S


def test_each_goal_is_said_with_what_it_came_to() -> None:
    def figures(goodput_per_s: float, ttft_s_p95: float, e2e_s_p95: float) -> Figures:
        return Figures(20.0, 100, 0, goodput_per_s, ttft_s_p95, e2e_s_p95)

    knee, over = figures(20.0, 0.8, 3.0), figures(17.0, 1.0, 3.0)
    found = Overload({1.0: knee, 3.0: over}, figures(4.0, 0.3, 2.0), figures(4.0, 0.32, 2.4), over)
    assert [each.rpartition(": ")[2] for each in found.verdicts()] == [
        *("missed", "held"),  # first tokens + 25 %
        *("held", "missed"),  # last tokens + 20 %
        "missed",  # 85 % of the goodput
    ]
