"""Asks a process of its own about a model: torch stays out of this one, and so does what goes wrong there."""

import json
import os
import subprocess
from typing import Any

from twofold.core.errors import ValueRefusedError
from twofold.live.environment import needed
from twofold.live.processes import python_module

LIMIT_S = 3600.0
OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}  # before the libraries look


def asked_worker(module: str, request: str, done: str, hint: str) -> dict[str, Any]:
    """The answer of a worker that reads JSON and writes it. `done` says what becomes of the model there.

    It opens models that strangers made, so that it sees no key of ours. Raises ValueRefusedError with its own
    words where it could not answer.
    """
    try:
        ended = subprocess.run(
            python_module(module),
            input=request,
            capture_output=True,
            text=True,
            check=False,
            timeout=LIMIT_S,
            env=needed(os.environ) | OFFLINE,
        )
    except subprocess.TimeoutExpired as error:
        raise ValueRefusedError(f"the model was not {done} within {LIMIT_S:g} s", hint=hint) from error
    try:
        said: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        said = {"error": (ended.stderr.strip().splitlines() or ["it ended without a word"])[-1]}
    if "error" in said:
        raise ValueRefusedError(f"the model was not {done}: {said['error']}", hint=hint)
    return said
