"""Machines of one's own: what `on:` names binds on every screen, and they are there from the first week."""

from collections.abc import Callable

from twofold.contracts.results.plan import Plan

Planned = Callable[[str], Plan]
OWN = """
name: own
model: llama-2-7b
training: {kind: pretrain, tokens: 200 Gtok, sequence: 4096 tok, global_batch: 512 seq, deadline: 60 d}
supply: {own: {node: DGX-H100, count: 4}}
"""
SERVED = """
serving:
  model: llama-3.1-8b
  on: 1xH200-SXM
  classes: {chat: {traffic: {rate: 1 /s, input: 900 tok, output: 200 tok}, slo: {ttft_p95: 2 s}}}
"""


def test_no_mix_of_leases_is_shown_where_nothing_is_leased(planned: Planned) -> None:
    assert planned(OWN).portfolio is None
    assert planned(OWN.replace("60 d", "60 d, on: 4x8xH100-SXM")).portfolio is None


def test_what_on_names_is_in_the_mix_from_the_first_week(planned: Planned) -> None:
    """It said `2 × 8 … weeks 5–7` of a run that was told to use four."""
    plan = planned(OWN.replace("60 d", "60 d, on: 4x8xH100-SXM") + SERVED)
    assert plan.portfolio
    (mine,) = [each for each in plan.portfolio.leases if each.term == "owned"]
    assert mine.units == 4 and mine.start_week == 0
