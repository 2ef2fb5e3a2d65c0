"""Every page in a real browser: nothing fetched or cut off, readable on a phone, in the dark and on paper."""

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.app.test_loop_page import PAGE
from tests.browser import Screen, Tab, opened, program
from tests.rehearsed import rehearsals
from tests.report.test_proof import PROOF
from twofold.contracts.results.plan import Plan, Refusal
from twofold.pages.loop_page import run_page
from twofold.pages.plan_page import plan_page
from twofold.pages.proof_page import proof_page
from twofold.pages.simulation_page import simulation_page

LAPTOPS = tuple(map(Screen, (1120, 1200, 1240, 1266)))  # about where cards begin to stand side by side
PHONE, DESK, DARK = Screen(320), Screen(1280), Screen(1280, scheme="dark")
PAPER = Screen(717, 1046, medium="print")  # A4 within the margins that Chromium prints with
LEAST_PX = 9.0  # of text that is read
LEAST_CONTRAST = 4.5  # WCAG 2.2, level AA
REFUSED = Refusal(
    "pretrain", "no machine trains `pretrain` within 1 h", (("would fit", "a deadline of 9 d"),)
)

# What is asked of a page, from outside: the page itself has no script.
SCRIPT = """
const seen = (e) => e.checkVisibility && e.checkVisibility() && e.getClientRects().length > 0
const own = (e) => [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim())
const said = (e) => e.tagName + ': ' + (e.textContent || '').trim().slice(0, 60)
const texts = () => [...document.body.querySelectorAll('*')].filter((e) =>
  own(e) && seen(e) && !['title', 'style', 'STYLE'].includes(e.tagName))
const scale = (e) => e.ownerSVGElement ? e.getScreenCTM().a : 1
const size = (e) => parseFloat(getComputedStyle(e).fontSize) * scale(e)
const small = (least) => texts().filter((e) => size(e) < least).map(said)
const box = (e) => { const b = e.getBoundingClientRect(); return [b.left, b.right, b.top, b.bottom] }
const outside = () => texts().filter((e) => box(e)[0] < -0.5 || box(e)[1] > innerWidth + 0.5)
const frames = () => [...document.querySelectorAll('.wide, figure')]
const cut = () => frames().filter((e) => e.scrollWidth > e.clientWidth + 1)
const reached = (e) => e.closest('.wide, figure')
const light = (c) => { const [r, g, b] = c.match(/[0-9.]+/g).map((v) => v / 255)
  .map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
  return 0.2126 * r + 0.7152 * g + 0.0722 * b }
const below = (e) => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor
  if (c.startsWith('rgb(')) return c } return 'rgb(255, 255, 255)' }
const ink = (e) => getComputedStyle(e)[e.ownerSVGElement ? 'fill' : 'color']
const contrast = (e) => { const [a, b] = [light(ink(e)), light(below(e))].sort((x, y) => y - x)
  return (a + 0.05) / (b + 0.05) }
const pale = (least) => texts().filter((e) => contrast(e) < least).map((e) => said(e) + ' ' + contrast(e))
const drawn = () => [...document.querySelectorAll('svg')].map((s) => ({ name: s.getAttribute('aria-label'),
  frame: box(s), texts: [...s.querySelectorAll('text')].map((t) => [t.firstChild?.textContent, ...box(t)]) }))
"""


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    if program() is None:
        pytest.skip("no Chromium here: `make system` installs it")
    with opened(tmp_path_factory.mktemp("browser")) as one:
        yield one


@pytest.fixture(scope="module")
def pages(examples: dict[str, Plan], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The page of each example, and one of a plan whose one half nothing meets, as files."""
    folder = tmp_path_factory.mktemp("pages")
    half = replace(examples["assistant"], training=(), infeasible=(REFUSED,))
    made = {}
    for name, plan in {**examples, "infeasible": half}.items():
        made[name] = folder / f"{name}.html"
        made[name].write_text(plan_page(plan, "0" * 64), "utf-8")
    return made


@pytest.fixture(scope="module")
def all_pages(pages: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Those, the page of every small rehearsal, of a live run and of a proof."""
    folder = tmp_path_factory.mktemp("answers")
    made = {name: simulation_page(each).html for name, each in rehearsals().items()} | {
        "run": run_page(PAGE).html,
        "proof": proof_page(PROOF).html,
    }
    for name, text in made.items():
        (folder / f"{name}.html").write_text(text, "utf-8")
    return {**pages, **{name: folder / f"{name}.html" for name in made}}


def _asked(tab: Tab, script: str) -> Any:
    return tab.value(f"(() => {{ {SCRIPT}; return {script} }})()")


def test_a_page_asks_for_nothing_but_itself_and_complains_of_nothing(
    tab: Tab, all_pages: dict[str, Path]
) -> None:
    for name, path in all_pages.items():
        tab.show(path, DESK)
        tab.value("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        assert tab.requests == [path.resolve().as_uri()], name
        assert tab.complaints == [], name


def test_the_browser_tells_what_a_bad_page_asks_for_and_complains_of(tab: Tab, tmp_path: Path) -> None:
    """So that the test before cannot pass by seeing nothing."""
    bad = tmp_path / "bad.html"
    bad.write_text(
        "<!doctype html><img src='other.png'><script>console.error('no'); none()</script>"
        "<p style='font-size:5px;color:#ccc;width:900px'>small, pale and wide</p>",
        "utf-8",
    )
    tab.show(bad, PHONE)
    assert [each.rpartition("/")[2] for each in tab.requests] == ["bad.html", "other.png"]
    assert any('"no"' in each for each in tab.complaints)
    assert any("none is not defined" in each for each in tab.complaints)
    tab.resize(Screen(321))
    assert len(_asked(tab, "small(9)")) == len(_asked(tab, "pale(4.5)")) == 1
    assert tab.value("document.documentElement.scrollWidth") > 321


def test_a_phone_shows_the_page_without_sideways_scrolling_or_tiny_text(
    tab: Tab, all_pages: dict[str, Path]
) -> None:
    for name, path in all_pages.items():
        tab.show(path, PHONE)
        assert tab.value("document.documentElement.scrollWidth") <= PHONE.width_px, name
        assert _asked(tab, f"small({LEAST_PX})") == [], name
        # What is wider scrolls within its own frame; nothing else is.
        wide = _asked(tab, "outside().filter((e) => !reached(e)).map(said)")
        assert wide == [], name


def test_a_phone_cuts_nothing_off_a_card(tab: Tab, pages: dict[str, Path]) -> None:
    """The table of goals ended before the figure that is predicted."""
    for name, path in pages.items():
        tab.show(path, PHONE)
        assert _asked(tab, "cut().filter((e) => e.closest('.card')).map(said)") == [], name


def test_a_desk_shows_every_table_and_picture_whole(tab: Tab, pages: dict[str, Path]) -> None:
    for name, path in pages.items():
        tab.show(path, DESK)
        for screen in (DESK, *LAPTOPS):
            tab.resize(screen)
            assert _asked(tab, "cut().map(said)") == [], (name, screen.width_px)
        assert _asked(tab, f"small({LEAST_PX})") == [], name


def test_text_stands_out_by_day_and_by_night(tab: Tab, pages: dict[str, Path]) -> None:
    for name, path in pages.items():
        tab.show(path, DESK)
        papers = []
        for screen in (DESK, DARK):
            tab.resize(screen)
            assert _asked(tab, f"pale({LEAST_CONTRAST})") == [], (name, screen.scheme)
            papers.append(_asked(tab, "light(below(document.body))"))
        day, night = papers
        assert day > 0.9 and night < 0.05, name


def test_paper_has_all_of_the_page(tab: Tab, pages: dict[str, Path]) -> None:
    for name, path in pages.items():
        tab.show(path, PAPER)
        assert _asked(tab, "outside().map(said)") == [], name
        cut = (
            "[...document.querySelectorAll('.wide, figure')].filter((e) => e.scrollWidth > e.clientWidth + 1)"
        )
        assert _asked(tab, f"{cut}.map(said)") == [], name
        assert _asked(tab, f"small({LEAST_PX})") == [], name
        sheets = tab.value("document.documentElement.scrollHeight") / PAPER.height_px
        printed = tab.pdf()
        assert printed.startswith(b"%PDF-")
        assert len(re.findall(rb"/Type\s*/Page\b", printed)) >= int(sheets), name


def test_every_number_that_is_linked_leads_to_what_is_there(tab: Tab, pages: dict[str, Path]) -> None:
    for name, path in pages.items():
        tab.show(path, DESK)
        lost = (
            "[...document.links].filter((a) => !document.getElementById(decodeURIComponent(a.hash.slice(1))))"
        )
        assert tab.value(f"{lost}.map((a) => a.hash)") == [], name
        tab.value("document.links[0].click()")
        top = "document.querySelector(':target').getBoundingClientRect().top"
        assert -1.0 <= tab.value(top) < DESK.height_px, name


def test_the_tabulator_goes_through_the_numbers_as_they_stand(tab: Tab, pages: dict[str, Path]) -> None:
    for name, path in pages.items():
        tab.show(path, DESK)
        tab.value("document.body.focus()")
        for number in range(5):
            tab.press("Tab")
            assert tab.value("[...document.links].indexOf(document.activeElement)") == number, name
        shown = "getComputedStyle(document.activeElement)"
        assert tab.value(f"{shown}.outlineStyle !== 'none' && parseFloat({shown}.outlineWidth) > 0"), name


def test_who_hears_the_page_hears_its_order(tab: Tab, pages: dict[str, Path]) -> None:
    """A language, one first heading, no level left out, heads on tables, a name on each picture."""
    for name, path in pages.items():
        tab.show(path, DESK)
        assert tab.value("document.documentElement.lang") == "en"
        assert tab.value("document.title") and tab.value("document.querySelectorAll('main').length") == 1
        levels = tab.value("[...document.querySelectorAll('h1,h2,h3,h4')].map((h) => +h.tagName[1])")
        assert levels.count(1) == 1 and levels[0] == 1
        assert all(after <= before + 1 for before, after in pairwise(levels)), name
        bare = "[...document.querySelectorAll('table')].filter((t) => !t.querySelector('th[scope]'))"
        assert tab.value(f"{bare}.length") == 0, name
        assert (
            tab.value("[...document.querySelectorAll('th')].filter((h) => !h.textContent.trim()).length") == 0
        )
        unnamed = "[...document.querySelectorAll('svg')].filter((s) => s.role !== 'img' || !s.ariaLabel)"
        assert tab.value(f"{unnamed}.length") == 0, name


def test_labels_stay_in_their_pictures_and_apart(tab: Tab, all_pages: dict[str, Path]) -> None:
    """As the browser measures text, and not as the drawing guesses it."""
    for name, path in all_pages.items():
        tab.show(path, DESK)
        for picture in _asked(tab, "drawn()"):
            left, right, top, bottom = picture["frame"]
            for at, (text, x1, x2, y1, y2) in enumerate(picture["texts"]):
                inside = left - 0.5 <= x1 and x2 <= right + 0.5 and top - 0.5 <= y1 and y2 <= bottom + 0.5
                assert inside, (name, picture["name"], text)
                for other, a1, a2, b1, b2 in picture["texts"][at + 1 :]:
                    # Boxes of lines are higher than their letters.
                    crossed = min(x2, a2) - max(x1, a1) > 0.5 and min(y2, b2) - max(y1, b1) > 4.0
                    assert not crossed, (name, picture["name"], text, other)
