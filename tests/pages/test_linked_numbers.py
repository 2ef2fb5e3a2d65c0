"""Every number in the tables and the headline of a page leads to where it comes from.

Whoever adds a number adds an entry for it: what has none stands here by name, with its reason.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from html import unescape

import pytest

from tests.app.test_loop_page import PAGE
from tests.rehearsed import rehearsals
from tests.report.test_proof import PROOF
from twofold.contracts.results.plan import Plan
from twofold.contracts.results.serving import RehearsedFigure
from twofold.measure.results import Column, Judged, Reached
from twofold.pages.loop_page import run_page
from twofold.pages.plan_page import plan_page
from twofold.pages.proof_page import proof_page
from twofold.pages.simulation_page import simulation_page
from twofold.pages.validation_page import validation_page
from twofold.report.validate import Validated

NUMBER = re.compile(r"(?<![\w.-])\d")  # nothing of H100-SXM5-80GB, fp8 and p95 is a number
HEADLINE = "headline"  # what stands above the second heading, and the titles of cards
NO_ENTRY = {  # section and column: why numbers there lead nowhere
    ("What nobody wrote", "taken as"): "the spec's default, whose key stands beside it",
    (
        "The bill of the first year",
        "price from",
    ): "the words of a price's source, which are no figures of ours",
}
REACHED = {
    Column.SEEN: Reached(0.08, 120, None, 0.1, 0.0),
    Column.LEFT_OUT: Reached(0.14, 120, None, 0.1, 0.4),
}
VALIDATED = Validated(
    "data of tests",
    {"training": 120},
    3,
    (),
    (Judged("Step time", "median", False, REACHED),),
    (),
    (),
    None,
    (),
)
LEAST_LINKED = {
    "plan": 40,
    "simulation": 25,
    "run": 30,
    "proof": 15,
    "validation": 6,
}  # of the largest page of each kind: they are read


def pieces_of(page: str) -> Iterator[tuple[str, str, str]]:
    """Section, column and HTML of every cell, and of what the headline says."""
    body = page.partition("<body>")[2].partition("<h2>Where the numbers come from</h2>")[0]
    parts = re.split(r"<h2[^>]*>(.*?)</h2>", body)
    for title, held in [("", parts[0]), *zip(parts[1::2], parts[2::2], strict=True)]:
        for table in re.findall(r"<table[^>]*>.*?</table>", held):
            heads = re.findall(r'<th scope="col"[^>]*>(.*?)</th>', table)
            for row in re.findall(r"<tr>(.*?)</tr>", table.rpartition("</thead>")[2]):
                cells = re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", row)
                for at, cell in enumerate(cells):
                    yield title, heads[at] if heads else cells[0], cell
        said = r"<(h1|h3|p|li)>(.*?)</\1>" if title in ("", *parts[1:2]) else r"<(h3|li)>(.*?)</\1>"
        for _, told in re.findall(said, re.sub(r"<table[^>]*>.*?</table>", "", held)):
            yield title, HEADLINE, told


def numbers_of(page: str) -> tuple[Counter[tuple[str, str]], list[tuple[str, str, str]]]:
    """Linked numbers by place, and those that lead nowhere, each with its text."""
    linked: Counter[tuple[str, str]] = Counter()
    bare = []
    for section, column, told in pieces_of(page):
        inside = [unescape(re.sub("<[^>]*>", "", each)) for each in re.findall(r"<a .*?</a>", told)]
        linked[section, column] += sum(bool(NUMBER.search(each)) for each in inside)
        rest = unescape(re.sub("<[^>]*>", "", re.sub(r"<a .*?</a>", "", told)))
        if NUMBER.search(rest):
            bare.append((section, column, rest))
    return linked, bare


def links_lead_somewhere(page: str) -> bool:
    ids = [unescape(each) for each in re.findall(r'\bid="([^"]*)"', page)]
    targets = {unescape(each) for each in re.findall(r'href="#([^"]*)"', page)}
    return targets <= {*ids} and len([each for each in ids if each in targets]) == len(targets)


def rehearsed(plan: Plan) -> Plan:
    """The same with a figure of the twin at each goal, as `--rehearse` leaves it."""

    def with_twin(one):  # type: ignore[no-untyped-def]
        seen = [RehearsedFigure(slo.metric, 0.9 * slo.limit_s, 0.8, 1.0, True, True) for slo in one.slos]
        slos = [replace(slo, rehearsed=each) for slo, each in zip(one.slos, seen, strict=True)]
        return replace(one, slos=tuple(slos))

    services = [replace(each, classes=tuple(map(with_twin, each.classes))) for each in plan.serving]
    return replace(plan, serving=tuple(services), rehearsed=True)


@pytest.fixture(scope="session")
def pages(examples: dict[str, Plan]) -> dict[str, dict[str, str]]:
    """By kind: every example, planned and rehearsed, every small rehearsal, a run, a proof, a validation."""
    plans = {name: plan_page(plan, "0" * 64) for name, plan in examples.items()}
    plans["rehearsed"] = plan_page(rehearsed(examples["assistant"]), "0" * 64)
    return {
        "plan": plans,
        "simulation": {name: simulation_page(made).html for name, made in rehearsals().items()},
        "run": {"run": run_page(PAGE).html},
        "proof": {"proof": proof_page(PROOF).html},
        "validation": {"validation": validation_page(VALIDATED).html},
    }


def test_every_number_is_linked_or_named_here_with_its_reason(pages: dict[str, dict[str, str]]) -> None:
    excused = set()
    for kind, made in pages.items():
        most = 0
        for name, page in made.items():
            linked, bare = numbers_of(page)
            assert links_lead_somewhere(page), (kind, name)
            lost = [each for each in bare if each[:2] not in NO_ENTRY]
            assert not lost, (kind, name, lost)
            excused |= {each[:2] for each in bare}
            most = max(most, linked.total())
        assert most >= LEAST_LINKED[kind], (kind, most)
    assert excused == {*NO_ENTRY}  # a reason that nothing needs is taken out


def test_a_number_that_leads_nowhere_is_found(pages: dict[str, dict[str, str]]) -> None:
    """So that the test before cannot pass by seeing nothing."""
    for made in pages.values():
        for page in made.values():
            places = list(re.finditer(r"<a [^>]*>([^<]*)</a>", page.partition("<dl>")[0]))
            numbers = [each for each in places if NUMBER.search(unescape(each[1]))]
            assert numbers
            for each in (numbers[0], numbers[-1]):
                assert len(numbers_of(page[: each.start()] + each[1] + page[each.end() :])[1]) == 1 + len(
                    numbers_of(page)[1]
                )
            broken = page.replace('href="#', 'href="#no-such-', 1)
            assert not links_lead_somewhere(broken)
