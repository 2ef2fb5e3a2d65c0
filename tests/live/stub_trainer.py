"""A stand-in for a trainer: steps, checkpoints and obeys as one, in milliseconds and with no library.

Its loss is a chain of digests, so that equal last losses say that no step was left out or done twice. Told
to end it writes a checkpoint; asked by the file `save` as well. `hang` in its folder makes rank 0 stand still
once; `slow-RANK` makes that rank's own work that many times as long as the others'. A third argument is how
long a write stands still, which it says as it is told it.
"""

import hashlib
import json
import os
import signal
import sys
import time
from pathlib import Path
from types import FrameType

FOLDER, RANK = Path(os.environ["TWOFOLD_JOB_FOLDER"]), int(os.environ["RANK"])
STEPS, STEP_S = int(sys.argv[1]), float(sys.argv[2])
WRITE_S = float(sys.argv[3]) if len(sys.argv) > 3 else None
CHECKPOINT = FOLDER / "checkpoint.json"
told_to_end = False


def end(_number: int, _frame: FrameType | None) -> None:
    global told_to_end
    told_to_end = True


def append(name: str, **line: object) -> None:
    with (FOLDER / name).open("a") as file:
        file.write(json.dumps(line) + "\n")


def save(step: int, loss: str, began_s: float) -> None:
    if RANK:
        return
    partial = CHECKPOINT.with_suffix(".partial")
    partial.write_text(json.dumps({"step": step, "loss": loss}))
    partial.replace(CHECKPOINT)
    if WRITE_S is not None:
        time.sleep(WRITE_S)
    took_s = time.monotonic() - began_s if WRITE_S is None else WRITE_S
    append("events.jsonl", event="checkpoint", step=step, write_s=took_s)


def main() -> None:
    signal.signal(signal.SIGTERM, end)
    done = json.loads(CHECKPOINT.read_text()) if CHECKPOINT.exists() else {"step": 0, "loss": "start"}
    step, loss, answered = done["step"], done["loss"], ""
    name = f"steps-rank-{RANK}.jsonl" if RANK else "steps.jsonl"
    while step < STEPS:
        began_s = time.monotonic()
        own_s = STEP_S * float(
            (FOLDER / f"slow-{RANK}").read_text() if (FOLDER / f"slow-{RANK}").exists() else 1
        )
        if RANK == 0 and (FOLDER / "hang").exists():
            (FOLDER / "hang").unlink()
            signal.pause()
        time.sleep(own_s)
        step, loss = step + 1, hashlib.sha256(loss.encode()).hexdigest()
        append(
            name, step=step, loss=loss, step_s=own_s, communication_s=0.0, slots=os.environ["TWOFOLD_SLOTS"]
        )
        asked = (FOLDER / "save").read_text() if (FOLDER / "save").exists() else ""
        if asked != answered and RANK == 0:
            answered = asked
            save(step, loss, began_s)
        if told_to_end:
            save(step, loss, began_s)
            sys.exit(128 + signal.SIGTERM)
    save(step, loss, time.monotonic())


if __name__ == "__main__":
    main()
