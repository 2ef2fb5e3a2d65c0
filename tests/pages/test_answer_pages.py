"""Pages of rehearsals and of live runs: one small file, the verdict first, numbers that lead somewhere."""

import re
from dataclasses import replace

import pytest

from tests.app.test_loop_page import PAGE
from tests.pages.test_plan_page import LARGEST_BYTES, Tags
from tests.rehearsed import ROOT, rehearsal, rehearsals
from twofold.app.simulating import SimulateOptions, simulate
from twofold.contracts.goals import metric_text
from twofold.core.display import format_seconds, format_si
from twofold.pages.loop_page import run_page
from twofold.pages.simulation_page import simulation_page


def pages() -> dict[str, str]:
    """Of every small rehearsal, and of a run."""
    return {
        **{name: simulation_page(made).html for name, made in rehearsals().items()},
        "run": run_page(PAGE).html,
    }


def test_each_page_is_one_small_file_whose_links_lead_into_it() -> None:
    for name, made in pages().items():
        assert len(made.encode()) <= LARGEST_BYTES
        seen = Tags()
        seen.feed(made)
        assert not seen.open and "script" not in seen.tags and "link" not in seen.tags, name
        ids = [each for each in seen.ids if not re.fullmatch(r"h\d", each)]
        assert len(ids) == len(set(ids)), name
        assert all(link.startswith("#") and link[1:] in seen.ids for link in seen.links), name
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", re.sub(r">[^<]*<", "><", made))


@pytest.mark.parametrize("name", ["finetune", "moe"])
def test_the_page_of_an_example_s_rehearsal_is_small_too(name: str) -> None:
    """Of two examples, by their own traffic; the others take 8 s and more each."""
    made = simulate(ROOT / "examples" / name, SimulateOptions("as-planned")).data
    assert 10_000 < len(simulation_page(made).html.encode()) <= LARGEST_BYTES


def test_the_verdict_stands_before_the_pictures_and_names_each_missed_goal() -> None:
    late = rehearsal("overload")
    one = late.classes[0]  # with goals that are missed, so that one is looked at
    lost = replace(one, slos=tuple(replace(slo, met=False) for slo in one.slos))
    for made in (*rehearsals().values(), replace(late, classes=(lost, *late.classes[1:]), slos_met=False)):
        for page in (simulation_page(made).html, simulation_page(made).markdown):
            before = page.partition("Pictures")[0]
            missed = [(one.name, goal) for one in made.classes for goal in one.missed]
            for name, goal in missed:
                assert f"✗ {name} {metric_text(goal)}" in before
            assert ("Held" in before) == made.slos_met


def test_every_goal_of_a_rehearsal_has_its_number_and_says_where_it_comes_from() -> None:
    for made in rehearsals().values():
        page = simulation_page(made).html
        for one in made.classes:
            for slo in one.slos:
                if slo.simulated_s is None:
                    continue
                path = f"{one.service}.{one.pool}.{one.name}.{slo.metric}"
                assert f'<a href="#{path}">{format_seconds(slo.simulated_s)}</a>' in page
                assert f'<dt id="{path}">' in page
            assert f"{one.arrived_count:,} arrived after the warm-up" in page


def test_a_page_says_what_the_plan_s_runs_got_and_who_stands_where() -> None:
    made = rehearsal("training-week")
    assert made.training is not None
    page = simulation_page(made).html
    for run in made.training.runs:
        assert run.name in page and run.state in page
    for job, place in list(made.training.placement.items())[:5]:
        assert f"<td><span>{job}</span></td>" in page or f"<td>{job}</td>" in page
        assert place in page


def test_a_run_s_page_counts_what_lies_in_its_range_and_marks_what_does_not() -> None:
    page = run_page(PAGE).html
    judged = [row for row in PAGE.rows if row.inside is not None]
    inside = sum(bool(row.inside) for row in judged)
    assert f"{inside} of {len(judged)} measured figures lie in their planned 80 % ranges" in page
    for row in PAGE.rows:
        if row.measured is not None:
            assert f"{format_si(row.measured, row.unit)} m" in page
    assert page.index("Not all as planned") < page.index("Pictures")
    everything = tuple(row for row in PAGE.rows if row.inside is not False)
    assert "As planned" in run_page(replace(PAGE, rows=everything)).html


@pytest.mark.parametrize("evil", ["</title><script>alert(1)</script>", "a\\|b <img src=x> `c`\n# d"])
def test_names_cannot_break_out_of_a_page(evil: str) -> None:
    made = replace(rehearsal("as-planned"), name=evil, about=evil, notes=(evil,), policies=(evil,))
    row = replace(PAGE.rows[0], name=evil)
    run = replace(PAGE, name=evil, machine=evil, notes=(evil,), rows=(row,))
    for page in (simulation_page(made).html, run_page(run).html):
        assert "<script" not in page and "<img" not in page
    for lines in (simulation_page(made).markdown, run_page(run).markdown):
        assert not re.search(r"(?<!\\)<(script|img)", lines)
        assert sum(line.startswith("# ") for line in lines.splitlines()) == 1
