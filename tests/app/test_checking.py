"""`check` reads what a spec names: its quotes and the mandates that its papers cite."""

from pathlib import Path

import pytest

from twofold.app.checking import check
from twofold.core.errors import InputErrors

SPEC = """name: q
model: llama-3.1-8b
training: {tokens: 1 Gtok, deadline: 30 d}
supply: {quotes: quotes.csv}
"""
HEADER = "provider,instance,accelerator,accelerator_count,region,term,usd_per_h,quoted"
ROW = "acme,box,H100-SXM,8,us-east-1,on_demand,20,2026-11-10"


def spec(folder: Path, text: str, *rows: str) -> Path:
    (folder / "quotes.csv").write_text("\n".join([HEADER, *rows]) + "\n")
    file = folder / "twofold.yaml"
    file.write_text(text)
    return file


def test_broken_quotes_are_told_before_a_plan_is_made(tmp_path: Path) -> None:
    with pytest.raises(InputErrors) as caught:
        check(spec(tmp_path, SPEC, ROW.replace("H100-SXM,8", "H900,-8")))
    places = [each.place for each in caught.value.errors]
    assert [(Path(place.file).name, place.line, place.column) for place in places if place] == [
        ("quotes.csv", 2, 10),
        ("quotes.csv", 2, 15),
    ]
    assert "1 quote can be read" in check(spec(tmp_path, SPEC, ROW)).lines


def test_cited_mandates_are_known_and_in_force(tmp_path: Path) -> None:
    rules = "compliance: {regime: fedramp-high, cites: [EO-14110, NAME]}\n"
    with pytest.raises(InputErrors) as caught:
        check(spec(tmp_path, SPEC + rules.replace("NAME", "M-25-2I"), ROW))
    (error,) = caught.value.errors
    assert "not a known mandate" in error.message and "`M-25-21`" in error.hint and error.place
    lines = check(spec(tmp_path, SPEC + rules.replace("NAME", "M-25-21"), ROW)).lines
    assert [line for line in lines if "EO 14110, revoked" in line] and not any("M-25-21" in x for x in lines)


@pytest.mark.parametrize(
    ("keys", "hint"),
    [
        ("cooling: liquid_800", "did you mean `liquid_800_v`?"),
        ("cooling: [air]", "one of: air"),
        ("tier: 3", "did you mean `III`"),
        ("power_cap: 5", "write `5 MW`"),
    ],
)
def test_what_a_building_is_asked_wrongly_is_told_with_what_to_write(
    keys: str, hint: str, tmp_path: Path
) -> None:
    with pytest.raises(InputErrors) as caught:
        check(spec(tmp_path, f"{SPEC}facility: {{{keys}}}\n", ROW))
    (error,) = caught.value.errors
    assert hint in error.hint
