"""Where the runs of a rehearsal happen: in this process, on the cores of this machine, or on Ray.

Every run is a call on plain data with its own seed, so that results are the same wherever it happens.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from multiprocessing import get_context
from typing import Any

from twofold.core.errors import RunError, TwofoldError
from twofold.core.extras import require_extra

Tell = Callable[[str], None]
Call = Callable[[], Any]  # plain data with a function of this package: other processes are sent it


class WorkEngine(StrEnum):
    """What runs them."""

    PROCESSES = "processes"
    RAY = "ray"


@dataclass(frozen=True, slots=True)
class Workers:
    """How many runs happen at once, and where. Ray knows itself how many it has room for."""

    process_count: int = 1
    engine: WorkEngine = WorkEngine.PROCESSES
    standing: ProcessPoolExecutor | None = None  # processes that are there already, for several `run_calls`


HERE = Workers()


@dataclass(frozen=True, slots=True)
class Refused:
    """An error that a run ended with: sent back as it is, whatever a pool makes of what is raised."""

    error: TwofoldError


@contextmanager
def standing_workers(process_count: int) -> Iterator[Workers]:
    """Processes that begin when they are first needed, and stay: several threads may have them run calls."""
    pool = ProcessPoolExecutor(process_count, get_context("spawn"))
    try:
        yield Workers(process_count, standing=pool)
    finally:
        pool.shutdown(cancel_futures=True)


def run_calls(calls: Sequence[Call], tell: Tell, workers: Workers = HERE) -> list[Any]:
    """What the calls return, in their order, whatever finishes first.

    Raises what the first refused call in that order would; RunError where a process ends before it answers;
    MissingExtraError where Ray is asked for and is not installed.
    """
    results: dict[int, Any] = {}
    tell(f"rehearsing, run 0 of {len(calls)}")
    for index, result in _finished(calls, workers):
        if isinstance(result, Refused):
            raise result.error
        results[index] = result
        tell(f"rehearsing, run {len(results)} of {len(calls)}")
    return [results[index] for index in range(len(calls))]


def _finished(calls: Sequence[Call], workers: Workers) -> Iterator[tuple[int, Any]]:
    """Results with their places, as they come."""
    if workers.engine is WorkEngine.RAY:
        return _on_ray(calls)
    if workers.standing:
        return _answers(workers.standing, calls)
    if workers.process_count <= 1 or len(calls) <= 1:
        return ((index, call()) for index, call in enumerate(calls))
    return _in_processes(calls, workers.process_count)


def _in_processes(calls: Sequence[Call], process_count: int) -> Iterator[tuple[int, Any]]:
    pool = ProcessPoolExecutor(min(process_count, len(calls)), get_context("spawn"))
    try:
        yield from _answers(pool, calls)
    finally:  # after an error nobody waits for what has not begun
        pool.shutdown(cancel_futures=True)


def _answers(pool: ProcessPoolExecutor, calls: Sequence[Call]) -> Iterator[tuple[int, Any]]:
    try:
        running = {pool.submit(answer, call): index for index, call in enumerate(calls)}
        for future in as_completed(running):
            yield running[future], future.result()
    except BrokenProcessPool as error:
        raise RunError(
            "a process that rehearses ended without an answer",
            hint='in a script, call `simulate` below `if __name__ == "__main__":`, as every process reads'
            " it anew; else there may be too little memory: ask for one process",
        ) from error


def _on_ray(calls: Sequence[Call]) -> Iterator[tuple[int, Any]]:
    """On the cluster that the user's environment names, else on one of this machine."""
    require_extra("ray")
    ray = import_module("ray")
    if not ray.is_initialized():
        ray.init(log_to_driver=False, include_dashboard=False)
    remote = ray.remote(answer)
    running = {remote.remote(call): index for index, call in enumerate(calls)}
    try:
        while running:
            (done,), _ = ray.wait(list(running), num_returns=1)
            yield running.pop(done), ray.get(done)
    finally:
        for left in running:
            ray.cancel(left)


def answer(call: Call) -> Any:
    """What a call returns, or the error of ours that it raises, as a value."""
    try:
        return call()
    except TwofoldError as error:
        return Refused(error)
