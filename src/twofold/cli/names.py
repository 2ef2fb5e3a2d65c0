"""Names that a shell completes: of models, accelerators, tables and scenarios; else the names of files.

It is asked at every press of a key: names are read from their files, without a model.
"""

import csv
from collections.abc import Callable, Iterator
from importlib.resources import files

import click
from click.shell_completion import CompletionItem

Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def tables() -> Iterator[str]:
    """Tables of the catalogue, and what else stands in their place."""
    data = files("twofold").joinpath("catalog", "data").iterdir()
    named = sorted(each.name for each in data if each.name.endswith(".csv"))
    yield from (name.removesuffix(".csv") for name in named if name != "schema.csv")
    yield from ("kernels", "refresh-prices")


def scenarios() -> Iterator[str]:
    """What stands in the package."""
    shipped = files("twofold").joinpath("scenarios").iterdir()
    yield from sorted(each.name.removesuffix(".yaml") for each in shipped if each.name.endswith(".yaml"))


def models() -> Iterator[str]:
    """Models of the catalogue."""
    yield from _first_column("models")


def accelerators() -> Iterator[str]:
    """Accelerators of the catalogue."""
    yield from _first_column("accelerators")


def completed(names: Callable[[], Iterator[str]], or_files: bool = False) -> Completer:
    """Completes by names; where none begins as what is written, by files if those may stand there too."""

    def complete(_: click.Context, __: click.Parameter, begun: str) -> list[CompletionItem]:
        found = [CompletionItem(name) for name in names() if name.startswith(begun)]
        return found or [CompletionItem(begun, type="file")] * or_files

    return complete


def _first_column(table: str) -> Iterator[str]:
    path = files("twofold").joinpath("catalog", "data", f"{table}.csv")
    with path.open(encoding="utf-8") as handle:
        lines = csv.reader(line for line in handle if not line.startswith("#"))
        next(lines)
        yield from (cells[0] for cells in lines if cells)
