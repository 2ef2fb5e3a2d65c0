from pathlib import Path

from twofold.contracts.plan_reference import SOURCE, read_schema, reference_page

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "plan.md"


def test_the_page_is_what_the_schema_says() -> None:
    hint = "run: python -m twofold.contracts.plan_reference docs/reference/plan.md"
    assert PAGE.read_text("utf-8") == reference_page(), hint


def test_every_field_of_the_plan_says_what_it_means() -> None:
    parts = read_schema(SOURCE.read_text("utf-8"))
    silent = [f"{part.name}.{field.name}" for part in parts for field in part.fields if not field.meaning]
    assert silent == []


def test_every_part_of_the_plan_has_a_summary() -> None:
    assert [part.name for part in read_schema(SOURCE.read_text("utf-8")) if not part.summary] == []
