"""All that scores and goals are worked out from: every row predicted once per column, every kernel once."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context

from twofold.catalog.catalog import load_catalog
from twofold.measure.kernel_scores import kernel_parts
from twofold.measure.results import Column, Refusals
from twofold.measure.truth import Row
from twofold.measure.validation import Data, Part, columns_of, parts_of, predict_column, refusals_of
from twofold.perf.constants import Constants, load_constants

COLUMN_WORDS: Mapping[Column, str] = {
    Column.SEEN: "unseen configurations",
    Column.LEFT_OUT: "sources left out",
    Column.PRIORS: "priors alone",
    Column.CALIBRATED: "after ten rows",
}
FEW_ROWS = 1000  # are predicted sooner than another process starts
Tell = Callable[[str], None]
Task = tuple[str, Column]


@dataclass(frozen=True, slots=True)
class Evidence:
    """Parts by the name of their figure, and what was refused."""

    parts: Mapping[str, Part]
    refusals: tuple[Refusals, ...]
    constants: Constants
    unkept: tuple[str, ...] = ()  # halves in which no fit is kept that missed a source


def gather(
    data: Data, tell: Tell = lambda _: None, only: Sequence[Column] = (), process_count: int = 1
) -> Evidence:
    """Predict the rows of `data` in all columns that there are, or in `only` these.

    `tell` hears how far it is. More processes than one start where there are many rows; they import the
    caller's main module.
    """
    catalog = load_catalog()
    tasks = [
        (half, column)
        for half, rows in data.rows.items()
        for column in columns_of(half, rows, data.blind)
        if not only or column in only
    ]
    many = sum(map(len, data.rows.values())) > FEW_ROWS
    run = _beside(data, tasks, process_count) if many and process_count > 1 else _in_turn(data, tasks, tell)
    answers: dict[str, dict[Column, list[Row]]] = {half: {} for half in data.rows}
    for done, ((half, column), answered) in enumerate(run, start=1):
        answers[half][column] = answered
        tell(f"predicted: {COLUMN_WORDS[column]} of {half}, step {done} of {len(tasks)}")
    parts: dict[str, Part] = {}
    refusals = []
    for half, rows in data.rows.items():
        parts |= {part.figure.name: part for part in parts_of(half, rows, answers[half], catalog)}
        refusals.append(refusals_of(half, rows, answers[half][Column.LEFT_OUT], catalog))
    if data.kernels and (not only or Column.SEEN in only):
        tell("kernels")
        parts |= {part.figure.name: part for part in kernel_parts(data.kernels, load_constants())}
    return Evidence(parts, tuple(refusals), load_constants(), data.unkept)


def _in_turn(data: Data, tasks: Sequence[Task], tell: Tell) -> Iterator[tuple[Task, list[Row]]]:
    for half, column in tasks:
        said = f"{half}, {COLUMN_WORDS[column]}: row {{}} of {len(data.rows[half])}"
        tell(said.format(0))

        def done(count: int, said: str = said) -> None:
            tell(said.format(count))

        yield (half, column), predict_column(half, data.rows[half], column, data.blind, done)


def _beside(data: Data, tasks: Sequence[Task], process_count: int) -> Iterator[tuple[Task, list[Row]]]:
    """The tasks in several processes, the longest first."""
    ordered = sorted(tasks, key=lambda task: (task[1] is not Column.CALIBRATED, -len(data.rows[task[0]])))
    with ProcessPoolExecutor(process_count, get_context("spawn")) as pool:
        running = {
            pool.submit(predict_column, half, data.rows[half], column, data.blind): (half, column)
            for half, column in ordered
        }
        for future in as_completed(running):
            yield running[future], future.result()
