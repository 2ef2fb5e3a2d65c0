"""Asks a process of its own about a model: torch stays out of this one, and so does what goes wrong there."""

import json
import subprocess
from typing import Any

from twofold.core.errors import ValueRefusedError
from twofold.live.processes import python_module

LIMIT_S = 3600.0


def asked_worker(module: str, request: str, done: str) -> dict[str, Any]:
    """The answer of a worker that reads JSON and writes it. `done` says what becomes of the model there.

    Raises ValueRefusedError with the worker's own words where it could not answer.
    """
    try:
        ended = subprocess.run(
            python_module(module), input=request, capture_output=True, text=True, check=False, timeout=LIMIT_S
        )
    except subprocess.TimeoutExpired as error:
        what = f"the model was not {done} within {LIMIT_S:g} s"
        raise ValueRefusedError(what, hint="see `--on`: write a shorter set") from error
    try:
        said: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        said = {"error": (ended.stderr.strip().splitlines() or ["it ended without a word"])[-1]}
    if "error" in said:
        raise ValueRefusedError(f"the model was not {done}: {said['error']}", hint="see `--on`")
    return said
