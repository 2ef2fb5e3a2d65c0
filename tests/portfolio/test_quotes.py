"""Quotes in a file: read as they stand, each mistake at its line and column."""

from datetime import date
from pathlib import Path

import pytest

from twofold.catalog.catalog import load_catalog
from twofold.core.errors import CatalogError, InputErrors, TwofoldError
from twofold.portfolio.problem import unit_usd_per_h
from twofold.portfolio.quotes import offer_of_quote, read_quotes

HEADER = "provider,instance,accelerator,accelerator_count,region,term,usd_per_h,units_max,from,until,quoted"
ROW = "us,big,H200,8,all,reserved_1y,12.40,4,,,2026-11-10"


def read(tmp_path: Path, *rows: str, header: str = HEADER) -> object:
    file = tmp_path / "quotes.csv"
    file.write_text("\n".join([header, *rows]) + "\n")
    return read_quotes(file, load_catalog())


def test_a_quote_becomes_an_offer_with_its_limit_and_term(tmp_path: Path) -> None:
    (quote,) = read(tmp_path, ROW)  # type: ignore[misc]
    offer = offer_of_quote(quote, None)
    assert (offer.accelerator, offer.unit_limit, offer.minimum_weeks) == ("H200-SXM5-141GB", 4, 52)
    assert unit_usd_per_h(offer) == pytest.approx(12.40)
    assert offer.source.endswith("quotes.csv:2") and offer.date == "2026-11-10"
    (placed,) = read(tmp_path, ROW.replace("all", "us-east-1").replace(",4,,", ",4,2027-01-01,"))  # type: ignore[misc]
    offers = (offer, offer_of_quote(placed, None))
    assert [each.stated_region for each in offers] == ["", "us-east-1"]


def test_a_file_of_quotes_is_read_up_to_its_limit_alone() -> None:
    with pytest.raises(CatalogError, match="characters is no quote"):
        read_quotes(Path("/dev/zero"), load_catalog())  # has no end


def test_a_quote_of_years_ahead_is_refused_where_the_day_is_known(tmp_path: Path) -> None:
    row = "us,big,H200,8,all,reserved_1y,12.4,4,,,{}"
    assert read(tmp_path, row.format("2999-01-01"))
    made = tmp_path / "quotes.csv"
    with pytest.raises(CatalogError, match="it was quoted on 2999-01-01") as caught:
        read_quotes(made, load_catalog(), date(2026, 11, 22))
    assert caught.value.place and caught.value.place.column == 40
    read(tmp_path, row.format("2026-11-23"))
    assert read_quotes(made, load_catalog(), date(2026, 11, 22))


@pytest.mark.parametrize(
    ("row", "says", "column"),
    [
        ("us,big,H200,8,all,reserved_1y,,4,,,2026-11-10", "`usd_per_h` is missing", 31),
        ("us,big,H200,8,all,reserved_1y,12.4,-4,,,2026-11-10", "`-4` is out of range", 36),
        ("us,big,H200,8,all,reserved_1y,12.4,0,,,2026-11-10", "`0` is out of range", 36),
        ("us,big,H200,8,atlantis-1,reserved_1y,12.4,4,,,2026-11-10", "unknown region `atlantis-1`", 15),
        ("us,big,H900,8,all,reserved_1y,12.4,4,,,2026-11-10", "unknown accelerator `H900`", 8),
        ("us,big,H200,8,all,weekly,12.4,4,,,2026-11-10", "`weekly` is not", 19),
        ("us,big,H200,8,all,lease,12.4,4,2027-03-01,2027-01-01,2026-11-10", "before it begins", 43),
    ],
)
def test_a_mistake_is_told_where_it_stands(row: str, says: str, column: int, tmp_path: Path) -> None:
    with pytest.raises(TwofoldError) as caught:
        read(tmp_path, row)
    assert says in caught.value.message
    place = caught.value.place
    assert place and (Path(place.file).name, place.line, place.column) == ("quotes.csv", 2, column)


def test_overlapping_days_of_one_offer_are_refused(tmp_path: Path) -> None:
    early = "us,big,H200,8,all,lease,12.4,4,2027-01-01,2027-03-31,2026-11-10"
    late = "us,big,H200,8,all,lease,11.4,4,2027-03-31,2027-06-30,2026-11-10"
    with pytest.raises(TwofoldError, match="overlap with those of line 2"):
        read(tmp_path, early, late)
    assert len(read(tmp_path, early, late.replace("2027-03-31", "2027-04-01"))) == 2  # type: ignore[arg-type]


def test_all_mistakes_come_in_one_pass(tmp_path: Path) -> None:
    with pytest.raises(InputErrors) as caught:
        read(tmp_path, ROW.replace("12.40", ""), ROW.replace("H200", "H900"))
    assert len(caught.value.errors) == 2


def test_a_row_tells_all_its_mistakes_and_a_file_the_first_ten(tmp_path: Path) -> None:
    wrong = 'us,"big, new",H900,8,mars,reservd_1y,-1,4,,soon,2026-11-10'
    with pytest.raises(InputErrors) as caught:
        read(tmp_path, *[wrong.replace("big", f"big{row}") for row in range(4)])
    found = caught.value.errors
    assert len(found) == 11 and found[-1].message.startswith("10 more mistakes")
    columns = [each.place.column for each in found[:5] if each.place]
    assert columns == [wrong.index(cell) + 2 for cell in ("H900", "mars", "reservd", "-1", "soon")]
    assert "did you mean `reserved_1y`" in found[2].hint
    assert not any("write `all`" in each.hint for each in found)


def test_unknown_and_missing_columns_are_named(tmp_path: Path) -> None:
    with pytest.raises(TwofoldError, match="`prize` is not a column"):
        read(tmp_path, header=HEADER.replace("usd_per_h", "prize"))
    with pytest.raises(TwofoldError, match="column `term` is missing"):
        read(tmp_path, header=HEADER.replace("term,", ""))
