"""Ask a predictor that lives in a Python of its own: one JSON line a question, one JSON line an answer.

The peer's code is never imported here: a small script of this folder runs in the peer's interpreter, imports
it there, and knows nothing of ours.
"""

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from twofold.core.errors import InputError

HERE = Path(__file__).parent
Question = Mapping[str, object]


def ask(
    python: str, script: str, arguments: Sequence[str], questions: Sequence[Question]
) -> tuple[str, list[dict[str, object]]]:
    """The peer's version, and an answer per question: its numbers, or `error`.

    Raises InputError when the interpreter or the peer in it is missing, with the last line it wrote.
    """
    command = [python, "-P", str(HERE / script), *arguments]
    text = "".join(json.dumps(question) + "\n" for question in questions)
    try:
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    except OSError as error:
        raise InputError(
            f"'{python}' cannot be run: {error.strerror}", hint="name a folder with bin/python"
        ) from error
    told = [json.loads(line) for line in done.stdout.splitlines()]
    if done.returncode or len(told) != len(questions) + 1:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise InputError(
            f"the peer behind {script} gave no answer: {last}",
            hint="bench/peers/README.md says how to fetch it; pass its place as --path",
        )
    return str(told[0]["version"]), told[1:]
