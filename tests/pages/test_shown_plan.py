"""A plan in a notebook: its decision and pictures as HTML that leaves the page around it alone."""

import re
from html.parser import HTMLParser

import twofold
from twofold.contracts.results.plan import Plan
from twofold.core.estimate import Estimate, Source
from twofold.pages.html import CELL, STYLE, scoped
from twofold.pages.shown_plan import ShownPlan

VOID = {"meta", "br", "hr", "img", "path", "circle", "line", "rect"}


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002
        self.seen.append(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag


def test_a_cell_has_the_decision_and_pictures_and_no_page_around_them(examples: dict[str, Plan]) -> None:
    for plan in examples.values():
        made = ShownPlan.of(plan)._repr_html_()
        tags = Tags()
        tags.feed(made)
        assert tags.open == [] and tags.seen[0] == "div"
        assert not {"html", "head", "body", "script", "link", "meta"} & set(tags.seen)
        assert {"h2", "table", "svg"} <= set(tags.seen)
        assert 'href="#' not in made  # what numbers would lead to is not in a cell
        for half in plan.halves:
            assert half.name in made


def test_a_style_reaches_nothing_beyond_its_cell() -> None:
    style = scoped(STYLE, f".{CELL}")
    rules = re.findall(r"([^{}\n]+)\{[^{}]*\}", style)
    assert len(rules) == len(re.findall(r"([^{}\n]+)\{[^{}]*\}", STYLE)) > 15
    for names in rules:
        assert all(name.startswith(f".{CELL}") for name in names.split(",")), names
    assert style.count("@media") == STYLE.count("@media")


def test_what_python_returns_shows_itself_with_pictures() -> None:
    planned = twofold.plan("examples/laptop")
    assert "<svg" in planned._repr_html_() and str(planned).startswith("laptop")
    assert planned.exit_code == 0


def test_an_estimate_is_short_where_it_is_shown_and_a_number_where_one_is_asked_for() -> None:
    step = Estimate(8.6312, 7.9414, 9.5083, "s", Source.FITTED)
    assert repr(step) == "Estimate(8.63 [7.94–9.51] s, f)"
    assert float(step) == 8.6312
