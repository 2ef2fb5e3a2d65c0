"""Workers that open models: what they are given, and what becomes of words that are no answer."""

import sys
from pathlib import Path

import pytest

from twofold.app.model_workers import asked_worker
from twofold.core.errors import ValueRefusedError

SAYS_ENVIRONMENT = "import json, os; print(json.dumps({'keys': sorted(os.environ)}))"


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A program of this source in the worker's place."""

    def placed(source: str) -> None:
        (tmp_path / "worker.py").write_text(source)
        command = (sys.executable, str(tmp_path / "worker.py"))
        monkeypatch.setattr("twofold.app.model_workers.python_module", lambda _module: command)

    return placed


def test_a_worker_that_opens_a_strangers_model_sees_no_key(worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    worker(SAYS_ENVIRONMENT)
    keys = asked_worker("m", "", "read", "")["keys"]
    assert "PATH" in keys and "OPENAI_API_KEY" not in keys


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ('print(\'{"error": "too wide"}\')', "not read: too wide"),
        ("raise SystemExit('out of memory')", "not read: out of memory"),
        ("", "not read: it ended without a word"),
        ("print('a line')", "not read: it ended without a word"),
    ],
)
def test_what_is_no_answer_is_an_error_in_the_workers_words(worker, source: str, says: str) -> None:
    worker(source)
    with pytest.raises(ValueRefusedError, match=says) as refused:
        asked_worker("m", "", "read", "shorten it")
    assert refused.value.hint == "shorten it"
