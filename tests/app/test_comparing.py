import pytest

import twofold
from twofold.app.estimating import search_layouts
from twofold.app.planning import search_fleets
from twofold.core.errors import EmptyError

SERVING = """\
model: llama-3.1-8b
serving:
  quantisation: [fp8]
  on: 1xH100-SXM
  classes: {chat: {traffic: {rate: 2 /s, input: 500 tok, output: 100 tok}, slo: {tpot_p95: 50 ms}}}
"""
TRAINING = "training: {tokens: 1 Gtok, on: 8xH100-SXM}\n"


def test_layouts_come_fastest_first_and_show_themselves() -> None:
    found = search_layouts("llama-3.1-70b", "8x8xH100-SXM", batch="512 seq", count=25)
    times = [layout.step_s.value for layout in found.data.layouts]
    assert len(times) == 25 and times == sorted(times)
    assert found._repr_html_().startswith("<pre>llama-3.1-70b")


def test_fleets_are_those_of_the_whole_plan_without_its_training() -> None:
    fleets = search_fleets(SERVING + TRAINING)
    assert fleets.training == () and len(fleets.serving) == 1
    assert fleets.serving[0].machine == twofold.plan(SERVING).serving[0].machine


def test_a_spec_without_a_service_has_no_fleet() -> None:
    with pytest.raises(EmptyError):
        search_fleets("model: llama-3.1-8b\n" + TRAINING)
