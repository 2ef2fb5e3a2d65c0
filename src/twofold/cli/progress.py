"""Progress on stderr: a line that changes where somebody watches, a line per stage in a log."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

WIDTH = 100
BAR_WIDTH = 20


@contextmanager
def stage_bar() -> Iterator[Callable[[str, float | None], None]]:
    """A function that takes a stage in words and how much of it is done, if that is known."""
    began_s = time.monotonic()
    watched = sys.stderr.isatty()
    shown = ""

    def tell(stage: str, fraction: float | None = None) -> None:
        nonlocal shown
        clock = f"[{time.monotonic() - began_s:4.0f} s] "
        if watched:
            text = f"{clock}{_bar(fraction)}{stage}"[: WIDTH - 1]
            click.echo(f"\r{text.ljust(WIDTH - 1)}", nl=False, err=True)
        elif stage != shown and fraction is None:
            click.echo(f"{clock}{stage}", err=True)
        shown = stage

    try:
        yield tell
    finally:
        if watched and shown:
            click.echo(f"\r{' ' * (WIDTH - 1)}\r", nl=False, err=True)


def _bar(fraction: float | None) -> str:
    if fraction is None:
        return ""
    full = round(BAR_WIDTH * min(max(fraction, 0.0), 1.0))
    return f"{'█' * full}{'·' * (BAR_WIDTH - full)} "
