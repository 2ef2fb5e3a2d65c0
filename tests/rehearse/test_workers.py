"""Runs come back in their order and errors as they were, from processes and from Ray alike."""

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from importlib.machinery import ModuleSpec
from operator import add
from types import ModuleType
from typing import Any

import pytest

from twofold.core.errors import MissingExtraError, Place, RunError, ValueRefusedError
from twofold.rehearse.workers import Call, WorkEngine, Workers, answer, run_calls
from twofold.rehearse.workers import Refused as RefusedRun


class FakeRay(ModuleType):
    """The few names of Ray that are used, finishing the last task first, and each task in this process."""

    def __init__(self) -> None:
        super().__init__("ray")
        self.__spec__ = ModuleSpec("ray", None)
        self.given: list[dict[str, Any]] = []
        self.cancelled: list[object] = []
        self.results: dict[object, Any] = {}

    def is_initialized(self) -> bool:
        return bool(self.given)

    def init(self, **settings: Any) -> None:
        self.given.append(settings)

    def remote(self, function: Callable[..., Any]) -> Any:
        fake = self

        class Remote:
            def remote(self, *arguments: Any) -> object:
                reference = object()
                fake.results[reference] = function(*arguments)
                return reference

        return Remote()

    def wait(self, references: list[object], num_returns: int) -> tuple[list[object], list[object]]:
        return references[-num_returns:], references[:-num_returns]

    def get(self, reference: object) -> Any:
        return self.results[reference]

    def cancel(self, reference: object) -> None:
        self.cancelled.append(reference)


@pytest.fixture
def fake_ray(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeRay]:
    fake = FakeRay()
    monkeypatch.setitem(sys.modules, "ray", fake)
    yield fake


def refuses() -> Any:
    raise ValueRefusedError("this cannot be", place=Place("a.csv", 7, 1), hint="write another")


def sums(count: int) -> list[Call]:
    return [partial(add, number, 100) for number in range(count)]


def test_results_keep_the_order_of_their_calls_and_progress_is_told() -> None:
    """Several processes: `tests/app/test_simulating.py`, which has real runs for them."""
    told: list[str] = []
    assert run_calls(sums(5), told.append) == [100, 101, 102, 103, 104]
    assert told == [f"rehearsing, run {number} of 5" for number in range(6)]
    assert run_calls(sums(1), lambda _: None, Workers(8)) == [100]  # one run needs no second process


class DyingPool:
    """Processes that end as they begin, as those of a script without a guarded main part do."""

    def __init__(self, *_: object) -> None:
        pass

    def submit(self, *_: object) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_exception(BrokenProcessPool("a child process terminated abruptly"))
        return future

    def shutdown(self, *, cancel_futures: bool) -> None:
        assert cancel_futures


def test_processes_that_end_without_an_answer_are_told_of_with_the_likely_cause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys.modules[run_calls.__module__], "ProcessPoolExecutor", DyingPool)
    with pytest.raises(RunError, match="ended without an answer") as caught:
        run_calls(sums(2), lambda _: None, Workers(2))
    assert "__main__" in caught.value.hint


def test_ray_gives_the_same_in_the_same_order(fake_ray: FakeRay) -> None:
    workers = Workers(engine=WorkEngine.RAY)
    assert run_calls(sums(4), lambda _: None, workers) == [100, 101, 102, 103]
    assert len(fake_ray.given) == 1  # and no second cluster
    assert run_calls(sums(2), lambda _: None, workers) == [100, 101]
    assert len(fake_ray.given) == 1
    assert not fake_ray.cancelled


def test_an_error_of_ours_comes_back_as_it_was_and_the_rest_is_called_off(fake_ray: FakeRay) -> None:
    for workers in (Workers(), Workers(engine=WorkEngine.RAY)):
        with pytest.raises(ValueRefusedError, match="this cannot be") as caught:
            run_calls([*sums(2), refuses], lambda _: None, workers)
        assert caught.value.place == Place("a.csv", 7, 1)
        assert caught.value.hint == "write another"
    assert len(fake_ray.cancelled) == 2  # the failed one was finished first
    refused = answer(refuses)
    assert isinstance(refused, RefusedRun)


def test_without_ray_its_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match="`ray` is not installed") as caught:
        run_calls(sums(2), lambda _: None, Workers(engine=WorkEngine.RAY))
    assert "pip install 'twofold[ray]'" in caught.value.hint


def test_real_ray_gives_the_same() -> None:
    ray = pytest.importorskip("ray", reason="needs the extra [ray]: `pip install -e '.[ray]'`")
    try:
        assert run_calls(sums(3), lambda _: None, Workers(engine=WorkEngine.RAY)) == [100, 101, 102]
    finally:
        ray.shutdown()
