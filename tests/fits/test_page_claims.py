"""The page of claims is that of the table and of the quantities' docstrings."""

import inspect
from dataclasses import replace
from pathlib import Path

import pytest

from fits.page_claims import changes, main, reference_page, with_changes
from twofold.catalog.catalog import load_catalog
from twofold.perf.constants import load_constants
from twofold.verdicts.quantities import QUANTITIES
from twofold.verdicts.table import load_claims
from twofold.verdicts.verdicts import Verdict, judge_all
from twofold.verdicts.world import World

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "claims.md"
HOWTO = PAGE.parents[1] / "howto" / "claims.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text("utf-8") == reference_page(), (
        "run python -m fits.page_claims docs/reference/claims.md"
    )


@pytest.mark.parametrize("name", sorted(QUANTITIES))
def test_every_quantity_says_what_it_is(name: str) -> None:
    text = inspect.getdoc(QUANTITIES[name].function) or ""
    assert text.split("\n")[0].rstrip().endswith("."), name
    assert next(iter(inspect.signature(QUANTITIES[name].function).parameters)) == "world"


def test_the_changed_verdicts_are_those_of_today() -> None:
    """What was before is in a table; what is now is computed, and so is the page."""
    page = HOWTO.read_text("utf-8")
    judged = judge_all(load_claims(), World(load_catalog(), load_constants()))
    assert page == with_changes(page, judged), (
        "run python -m fits.page_claims docs/reference/claims.md docs/howto/claims.md"
    )


def test_a_verdict_that_changes_without_a_rule_is_refused() -> None:
    judged = judge_all(load_claims()[:1], World(load_catalog(), load_constants()))[0]
    other = replace(judged, verdict=Verdict.CONTRADICTED)
    with pytest.raises(AssertionError, match="no rule"):
        changes({row: replace(other, id=row) for row in (claim.id for claim in load_claims())})


def test_the_page_is_written_where_it_is_asked(tmp_path: Path) -> None:
    main([str(tmp_path / "page.md")])
    assert (tmp_path / "page.md").read_text("utf-8").startswith("# Claims and their predicates")
