"""Progress on stderr: one line that changes where somebody watches, now and then a line in a log."""

import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress

import click

WIDTH = 100
BAR_WIDTH = 20
PATIENCE_S = 2.0  # a shorter wait shows no progress
OpenedBar = Callable[[], AbstractContextManager[Callable[[str], object]]]  # which takes what is going on
LOG_EVERY_S = 15.0  # of one stage, where nobody watches
STAYS = "frozen: "  # how words begin that nothing may overwrite: a witness of what was said before
COUNTED = re.compile(r"(\d+) of (\d+)")


@contextmanager
def stage_bar() -> Iterator[Callable[[str], None]]:
    """A function that takes what is going on in words; `step 3 of 110` in them draws a bar.

    A log gets a line when the stage changes, by its words before the first figure, and at most every
    LOG_EVERY_S seconds within one.
    """
    began_s = time.monotonic()
    watched = sys.stderr.isatty()
    last_stage, last_s = "", 0.0

    def tell(text: str) -> None:
        nonlocal last_stage, last_s
        now_s = time.monotonic()
        line = f"[{now_s - began_s:4.0f} s] {_bar(text)}{text}"
        stage = re.split(r"\d", text, maxsplit=1)[0]
        if watched and text.startswith(STAYS):
            click.echo(f"\r{line.ljust(WIDTH - 1)}", err=True)
        elif watched:
            click.echo(f"\r{line[: WIDTH - 1].ljust(WIDTH - 1)}", nl=False, err=True)
        elif stage != last_stage or now_s - last_s >= LOG_EVERY_S:
            click.echo(line, err=True)
            last_s = now_s
        last_stage = stage

    try:
        yield tell
    finally:
        if watched and last_stage:
            with suppress(OSError):  # the terminal may be gone
                click.echo(f"\r{' ' * (WIDTH - 1)}\r", nl=False, err=True)


@contextmanager
def patient_bar() -> Iterator[Callable[[str], None]]:
    """The bar where somebody watches, once the wait is worth one; a log gets nothing."""
    start_s = time.monotonic()
    with stage_bar() as bar:

        def tell(text: str) -> None:
            if sys.stderr.isatty() and time.monotonic() - start_s > PATIENCE_S:
                bar(text)

        yield tell


@contextmanager
def watched_bar(first: str = "planning") -> Iterator[Callable[[str], None]]:
    """The bar from the first moment where somebody watches; a log gets nothing."""
    with stage_bar() as bar:
        tell = bar if sys.stderr.isatty() else lambda _: None
        tell(first)
        yield tell


@contextmanager
def stage_lines() -> Iterator[Callable[[str], None]]:
    """A line a stage, watched or not."""
    yield lambda stage: click.echo(f"measuring: {stage}", err=True)


@contextmanager
def watched_screen() -> Iterator[Callable[[str], bool]]:
    """A function that draws a whole screen on stdout where somebody watches, and says whether one does."""
    watched = sys.stdout.isatty()

    def draw(text: str) -> bool:
        if watched:
            click.echo(f"\033[H\033[2J{text}")
        return watched

    yield draw
    if watched:
        click.echo("\033[H\033[2J", nl=False)  # the answer is printed where the screens were


@contextmanager
def passed_on() -> Iterator[Callable[[str], bool]]:
    """A function that prints a line at once, whoever reads it."""

    def tell(text: str) -> bool:
        click.echo(text)
        sys.stdout.flush()
        return True

    yield tell


@contextmanager
def silence() -> Iterator[Callable[[str], None]]:
    """Nothing, for answers that come at once."""
    yield lambda _: None


def _bar(text: str) -> str:
    counted = COUNTED.search(text)
    if not counted or not int(counted[2]):
        return ""
    full = round(BAR_WIDTH * min(int(counted[1]) / int(counted[2]), 1.0))
    return f"{'█' * full}{'·' * (BAR_WIDTH - full)} "
