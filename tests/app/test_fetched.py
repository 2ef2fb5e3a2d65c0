"""A fresh snapshot of prices: written where gpuhunt answers, refused in plain words where it cannot."""

import sys
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from types import ModuleType

import pytest

from twofold.app.catalogue import refresh_prices
from twofold.catalog.catalog import load_catalog
from twofold.core.errors import InputError, UsageError

DAY = date(2026, 11, 22)


@dataclass(frozen=True)
class Item:
    """One offer as the library returns it."""

    provider: str = "lambda"
    instance_name: str = "gpu_8x"
    location: str = "us-east-1"
    price: float = 20.0
    gpu_count: int = 8
    gpu_name: str | None = "H100"
    gpu_memory: float = 80.0
    spot: bool = False


def hunting(monkeypatch: pytest.MonkeyPatch, *items: Item, error: Exception | None = None) -> None:
    module = ModuleType("gpuhunt")

    def query() -> list[Item]:
        if error:
            raise error
        return list(items)

    module.query = query  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "gpuhunt", module)


def test_a_snapshot_lies_over_the_shipped_prices(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    hunting(
        monkeypatch,
        Item(),
        Item(gpu_name="A100", price=8.0, spot=True),
        Item(gpu_name="Abacus"),
        Item(gpu_count=0),
    )
    written = refresh_prices(tmp_path / "catalog", DAY)
    assert (written.row_count, written.left_out) == (2, 2)
    prices = load_catalog(tmp_path / "catalog").prices_for("H100-SXM5-80GB")
    mine = [price for price in prices if price.instance == "gpu_8x"]
    assert [(each.usd_per_accelerator_h, each.date, each.term) for each in mine] == [
        (2.5, "2026-11-22", "on_demand")
    ]
    assert any("2 prices of today" in line for line in written.lines)


def test_without_the_extra_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "gpuhunt", None)
    with pytest.raises(UsageError, match="not installed") as caught:
        refresh_prices(tmp_path, DAY)
    assert "twofold[fetch]" in caught.value.hint and not list(tmp_path.iterdir())


@pytest.mark.parametrize("items", [(), (Item(gpu_name=None),)], ids=["none", "unknown"])
def test_no_offers_write_no_file(
    items: tuple[Item, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hunting(monkeypatch, *items)
    with pytest.raises(InputError, match="no offer came back"):
        refresh_prices(tmp_path, DAY)
    assert not list(tmp_path.iterdir())


def test_without_a_network_the_shipped_prices_stay(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    hunting(monkeypatch, error=OSError("no route to host"))
    with pytest.raises(InputError, match="no route to host") as caught:
        refresh_prices(tmp_path, DAY)
    assert "shipped prices stay" in caught.value.hint


def test_rows_of_yours_are_not_overwritten(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    hunting(monkeypatch, Item())
    (tmp_path / "prices.csv").write_text("provider\n")
    with pytest.raises(InputError, match="there already"):
        refresh_prices(tmp_path, DAY)
