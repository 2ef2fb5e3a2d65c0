import importlib
import json

import twofold
from twofold.app.planning import Explanation, plan_to_json
from twofold.contracts.results.plan import Plan
from twofold.core.data import to_data
from twofold.pages.shown_plan import ShownPlan
from twofold.planner.explained import Change
from twofold.report.differences import Difference


def test_a_plan_shows_itself_and_stays_the_same_data(plan: Plan) -> None:
    shown = ShownPlan.of(plan)
    assert plan_to_json(shown) == plan_to_json(plan)
    assert str(shown).startswith("assistant · llama-3.1-70b")


def test_html_is_escaped() -> None:
    text = Explanation("a", ("<script>",))
    assert text._repr_html_() == "<pre>&lt;script&gt;</pre>"
    assert str(text) == "<script>"


def test_html_has_bold_heads_and_marks_what_is_missed() -> None:
    text = Explanation(
        "a", ("DO THIS rent 2 × 8", "GOALS        missed", "  chat  1 s  ✗", "A100 is no head")
    )
    html = text._repr_html_()
    assert "<b>DO THIS</b> rent" in html and "<b>GOALS</b>" in html and "<b>A" not in html
    assert '<b style="color: #c00">✗</b>' in html


def test_a_difference_is_true_when_something_changed() -> None:
    assert not Difference(())
    assert str(Difference(())) == "no change"
    estimate = {"value": 8.6, "low": 7.9, "high": 9.5, "unit": "s", "source": "f"}
    gone, renamed = Change("training.pretrain.step_s", estimate, None, None), Change("name", "a", "b", None)
    changed = Difference((gone, renamed))
    assert changed
    assert "8.6 s [7.9–9.5] f" in str(changed) and "2 changes" in str(changed)
    assert json.dumps(to_data(changed))


def test_the_package_offers_the_verbs_and_a_room_does_not_hide_one() -> None:
    for room in ("planner", "verdicts", "report", "measure"):
        importlib.import_module(f"twofold.{room}")
    assert callable(twofold.plan)
    assert all(callable(getattr(twofold, name)) for name in twofold.__all__ if not name.startswith("_"))
