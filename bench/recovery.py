"""What a killed rank costs: from the kill to the next new step, beside what starting bare ranks takes.

The bare start is the least that any restart needs: the launcher, the libraries, a process group of gloo,
nothing else, measured in the same minute on the same machine. The goal is at most twice that. The second
figure is what an asynchronous save blocks, of the step that saves; the third how much longer steps take while
one is written beside them. Other work on the machine stretches all of it; the ratios are stretched less.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from twofold.live.processes import stop_all
from twofold.live.training.train_job import ENVIRONMENT, TrainJob, run_training
from twofold.live.training.training_record import StepLine, read_events, read_steps

RANKS, STEPS, EVERY = 2, 48, 6
WARM_UP = 3  # steps of each attempt
CONFIG = Path(__file__).parents[1] / "examples" / "laptop" / "config.json"
BARE = """
import torch, transformers.models.llama.modeling_llama, torch.distributed.checkpoint
import torch.distributed as dist
dist.init_process_group("gloo")
dist.barrier()
dist.destroy_process_group()
"""


def bare_start_s(folder: Path) -> float:
    """Seconds of a launcher and its ranks that import, meet and end."""
    script = folder / "bare.py"
    script.write_text(BARE)
    words = ["-P", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(RANKS), str(script)]
    began_s = time.perf_counter()
    environment = {**os.environ, **ENVIRONMENT, "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, *words], check=True, capture_output=True, env=environment)
    return time.perf_counter() - began_s


def beside(steps: list[StepLine], saves: list[dict[str, float]]) -> str:
    """How long steps take while a checkpoint is written, over those of the same run while none is."""
    writes = [(save["at_s"] - save["write_s"], save["at_s"]) for save in saves]
    during, others = [], []
    for number, line in enumerate(steps):
        is_warm = number >= WARM_UP and steps[number - WARM_UP].attempt == line.attempt
        if not is_warm or line.step % EVERY == 0:
            continue
        overlaps = any(line.at_s > begin and line.at_s - line.step_s < end for begin, end in writes)
        (during if overlaps else others).append(line.step_s)
    if not during or not others:
        return "no step was beside a write"
    ratio = statistics.median(during) / statistics.median(others)
    return f"{len(during)} steps beside one take {ratio:.2f} × the other {len(others)}"


def main() -> None:
    """Print all ratios."""
    with tempfile.TemporaryDirectory() as name:
        state = Path(name)
        job = TrainJob("killed", state / "train" / "killed", CONFIG, RANKS, STEPS, 128, 8)
        job = replace(job, checkpoint_every_steps=EVERY, kill_rank=1, kill_after_step=EVERY + 2)
        before_s = bare_start_s(state)
        try:
            measured = run_training(job, state, lambda _: None)
        finally:
            stop_all(state)
        after_s = bare_start_s(state)
        steps, saves = read_steps(job.folder), read_events(job.folder, "checkpoint")
    bare_s = statistics.fmean((before_s, after_s))
    assert measured.recovery is not None
    kill_s = measured.recovery.kill_to_step_s
    print(f"bare start {before_s:.1f} s before, {after_s:.1f} s after; kill to next step {kill_s:.1f} s:")
    print(f"{kill_s / bare_s:.2f} × a bare start; the goal is 2")
    saving = [line for line in steps if line.step % EVERY == 0]
    shares = sorted(line.checkpoint_s / line.step_s for line in saving)
    said = f"{statistics.median(shares):.1%} of its step (median of {len(shares)}, at most {shares[-1]:.1%})"
    print(f"a save blocks {said}; the goal is 10 %")
    write_s = statistics.median(save["write_s"] for save in saves)
    print(f"a write takes {write_s:.2f} s; {beside(steps, saves)}")
    print(json.dumps({"step_s_p50": measured.step_s_p50, "checkpoint_bytes": measured.checkpoint_bytes}))


if __name__ == "__main__":
    main()
