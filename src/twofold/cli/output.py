"""What verbs share: the options `--json`, `--out` and `--force`, and writing to stdout and to files."""

import json
import os
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import click

from twofold.core import FileError

json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print data, with a versioned schema name."
)
out_option = click.option("--out", "out", type=click.Path(path_type=Path), help="Write to this file instead.")
force_option = click.option("--force", is_flag=True, help="Replace the output file if it exists.")


def today() -> date:
    """The day that prices are judged by; SOURCE_DATE_EPOCH fixes it where output must be repeatable."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    return datetime.fromtimestamp(int(epoch), UTC).date() if epoch.isdigit() else date.today()


def print_lines(lines: Iterable[str]) -> None:
    click.echo("\n".join(lines))


def print_json(schema: str, data: Mapping[str, Any]) -> None:
    """One JSON object on stdout, its schema first."""
    click.echo(json_text(schema, data), nl=False)


def json_text(schema: str, data: Mapping[str, Any]) -> str:
    return json.dumps({"schema": schema, **data}, indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def check_free(path: Path, force: bool) -> None:
    """Raises FileError if `path` is there and may not be replaced. Asked before the work, not after it."""
    if path.is_dir():
        raise FileError(f"`{path}` is a folder", hint="name a file in it")
    if path.exists() and not force:
        raise FileError(f"`{path}` exists", hint="write elsewhere, or add `--force` to replace it")
    if not path.parent.is_dir():
        raise FileError(f"`{path.parent}` does not exist", hint="make the folder first")


def write_text(path: Path, text: str) -> None:
    """All of the text or nothing."""
    from twofold.app import whole_file

    with whole_file(path) as handle:
        handle.write(text)
