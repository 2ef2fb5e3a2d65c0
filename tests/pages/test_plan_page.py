"""The page to mail: one file, no script, links that lead somewhere, and the numbers that the screen has."""

import re
from collections.abc import Callable
from dataclasses import replace
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from twofold.app.reporting import write_page
from twofold.contracts.results.ledger import total_usd
from twofold.contracts.results.plan import Plan, Refusal
from twofold.core.display import format_range, format_usd
from twofold.core.errors import FileError
from twofold.pages.markdown import plan_markdown
from twofold.pages.plan_page import plan_page
from twofold.report.decision import decision_lines, sureness
from twofold.report.details import screen_lines
from twofold.report.figures import ranged
from twofold.report.plan import plan_lines

OWN = """
name: own
training: {model: llama-2-13b, tokens: 30 Gtok, deadline: 30 d}
serving: {model: llama-3.1-8b, classes: {chat: {traffic: {rate: 4 /s}, slo: {ttft_p95: 800 ms}}}}
supply: {own: [{node: DGX-H100, count: 4}]}
"""
LARGEST_BYTES = 1_000_000
VOID = {"meta", "br", "hr", "img", "path", "circle", "line", "rect"}


class Tags(HTMLParser):
    """Which elements are open, what may be reached, and what is linked."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        said = dict(attrs)
        self.tags.add(tag)
        self.ids += [said["id"]] if said.get("id") else []
        self.links += [each for each in (said.get("href"), said.get("src")) if each]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags |= {tag, *(name for name, _ in attrs if name.startswith("on"))}


def test_a_page_is_one_small_file_whose_links_lead_into_it(examples: dict[str, Plan]) -> None:
    for name, plan in examples.items():
        made = plan_page(plan, "0" * 64)
        assert len(made.encode()) <= LARGEST_BYTES
        seen = Tags()
        seen.feed(made)
        assert not seen.open and "script" not in seen.tags and "link" not in seen.tags
        assert len(seen.ids) == len(set(seen.ids)), name
        assert all(link.startswith("#") and link[1:] in seen.ids for link in seen.links)
        assert len(seen.links) > 20
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", re.sub(r">[^<]*<", "><", made))


def test_the_page_has_the_numbers_that_the_json_has(examples: dict[str, Plan]) -> None:
    for plan in examples.values():
        made = plan_page(plan, "0" * 64)
        for run in plan.training:
            assert ranged(run.step_s) in made and ranged(run.run.total_s) in made
        for service in plan.serving:
            for one in service.classes:
                for slo in one.slos:
                    assert slo.predicted is None or ranged(slo.predicted) in made
        if plan.money:
            assert f"{plan.money.total_usd:,.2f}" in made


def test_the_page_has_a_layout_for_each_kind_of_replica(examples: dict[str, Plan]) -> None:
    several = 0
    for plan in examples.values():
        page = plan_page(plan, "0" * 64)
        for service in plan.serving:
            kinds = {pool.replica.text for pool in service.pools}
            several += len(kinds) > 1
            for pool in service.pools if len(kinds) > 1 else ():
                path = f"serving.{service.name}.pools.{pool.name}.replica"
                assert f"one replica for {' and '.join(pool.classes)}" in page
                assert f'href="#{path}"' in page and f'id="{path}"' in page
                assert pool.replica.text in page
    assert several


def test_page_screen_and_json_show_one_number_by_one_formatter(
    examples: dict[str, Plan], example_data: dict[str, dict[str, Any]]
) -> None:
    """What the JSON holds, formatted here, is what the page and the terminal say, figure by figure."""
    seen = 0
    for name, plan in examples.items():
        data = example_data[name]
        page = plan_page(plan, "0" * 64)
        screen = "\n".join(screen_lines(plan, "SPEC", full=True, details=True, money=False, defaults=False))
        told = [run[key] for run in data["training"] for key in ("step_s", "cost_usd", "mfu_fraction")]
        told += [
            slo["predicted"]
            for service in data["serving"]
            for one in service["classes"]
            for slo in one["slos"]
        ]
        for each in (data["first_year_usd"], *told):
            if each is None:
                continue
            value, low, high = each["value"], each["low"], each["high"]
            unit = "" if each["unit"] == "1" else each["unit"]
            text = format_range(value, low, high, unit)
            assert text in page, (name, text)
            assert text in screen, (name, text)
            seen += 1
    assert seen >= 25


def test_markdown_has_the_decision_and_a_table_that_holds(examples: dict[str, Plan]) -> None:
    for plan in examples.values():
        lines = plan_markdown(plan, "0" * 64).splitlines()
        assert all(line in lines for line in decision_lines(plan))
        if plan.money:
            assert f"| total |  |  | {plan.money.total_usd:,.2f} |" in lines


def test_no_price_of_a_bill_is_written_with_an_exponent(examples: dict[str, Plan]) -> None:
    money = examples["assistant"].money
    assert money is not None
    dear = replace(money, lines=(replace(money.lines[0], unit_usd=44_906.85), *money.lines[1:]))
    plan = replace(examples["assistant"], money=dear)
    for made in (plan_page(plan, "0" * 64), plan_markdown(plan, "0" * 64)):
        assert "44,907" in made and "e+04" not in made


def test_names_cannot_break_out_of_the_page(examples: dict[str, Plan]) -> None:
    evil = "</title><script>alert(1)</script>"
    plan = replace(examples["assistant"], name=evil, warnings=(evil,))
    made = plan_page(plan, "0" * 64)
    assert "<script" not in made


def test_what_nothing_meets_stands_on_the_page_and_in_markdown(examples: dict[str, Plan]) -> None:
    said = Refusal(
        "pretrain", "no machine trains `pretrain` within 1 h", (("would fit", "a deadline of 9 d"),)
    )
    plan = replace(examples["assistant"], infeasible=(said,))
    page = re.sub("</?code>", "`", plan_page(plan, "0" * 64))
    for made in (page, plan_markdown(plan, "0" * 64).replace("\\", "")):
        assert "Nothing meets" in made and said.message in made
    assert "a deadline of 9 d" in plan_page(plan, "0" * 64)
    assert "Nothing meets" not in plan_page(examples["assistant"], "0" * 64)


def test_names_cannot_break_out_of_markdown(examples: dict[str, Plan]) -> None:
    evil = "a\\|b <img src=x> `c`\n```\n# d"
    plan = replace(examples["assistant"], name=evil, defaults=((evil, evil),), twofold=evil)
    lines = plan_markdown(plan, "0" * 64).splitlines()
    assert sum(line.startswith("```") for line in lines) == 2
    (row,) = [line for line in lines if line.startswith("| a")]
    assert len(re.findall(r"(?<!\\)(?:\\\\)*\|", row)) == 3  # the marks of two cells, and no more
    told = [lines[0], row, lines[-1]]
    assert not any(re.search(r"(?<!\\)[<`]", line) for line in told)


def test_a_report_that_cannot_be_written_leaves_nothing(tmp_path: Path, examples: dict[str, Plan]) -> None:
    with pytest.raises(FileError):
        write_page(examples["laptop"], tmp_path / "none" / "page.html")
    answer = write_page(examples["laptop"], tmp_path / "page.html")
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]
    assert answer.files[0][1] == (tmp_path / "page.html").stat().st_size


def test_what_ones_own_machines_cost_is_one_answer(planned: Callable[[str], Plan]) -> None:
    """Cards said `–` and sections `no price`, where the decision and the bill had an amount."""
    plan = planned(OWN)
    page, screen = plan_page(plan, "0"), " ".join(plan_lines(plan))
    for half in plan.halves:
        usd = plan.own_usd(half.name)
        assert usd and plan.money
        lines = [line for line in plan.money.lines if line.what.startswith(f"{half.name}:")]
        assert usd == total_usd(lines)
        assert f">{format_usd(usd)} for power, your own</a>" in page
        assert f'href="#money.own.{half.name}"' in page and f'id="money.own.{half.name}"' in page
        assert f"{format_usd(usd)}{'/y' * (half in plan.serving)} for power, your own" in screen
    assert "no price" not in screen and sureness(plan) in screen
    assert escape(sureness(plan)) in page and "is to hold with" not in page


def test_a_page_says_each_word_once_and_commands_as_code(
    planned: Callable[[str], Plan], tmp_path: Path
) -> None:
    """It had `expected loss | expected loss 2.1`, backticks, SPEC for a file, a place that nobody named."""
    spec = tmp_path / "ours.yaml"
    spec.write_text(OWN)
    write_page(spec, tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "expected loss" in page and ">expected loss 2" not in page
    assert "`" not in page.partition("Where the numbers come from")[0] and "SPEC" not in page
    assert f"<code>twofold plan {spec} --rehearse</code>" in page
    plan = planned(OWN)
    assert plan.building and plan.building.sites == ()
