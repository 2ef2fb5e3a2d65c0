"""Codes of a search in words."""

import pytest

from twofold.answer.refusals import reason_text


@pytest.mark.parametrize("reason", ["slo ttft_s_p95", "slo tpot_s_p50", "slo e2e_s_p99", "memory", "heads"])
def test_no_internal_name_reaches_a_screen(reason: str) -> None:
    assert "_" not in reason_text(reason)
    assert "slo" not in reason_text(reason)
