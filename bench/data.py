"""How fast text becomes batches: staging, then readers; and whether a step's reading grows with the run.

A step of the laptop's example consumes 8 sequences of 128 tokens; the goal is a loader that reads at least
ten times what a rank of it consumes in a step of 0.3 s, the fastest that was measured here. Readers run one
to a process, as ranks do: each one's rate and the total are printed. The last lines read 200,000 steps of a
small stream and compare the processor time of a step at the beginning with that at the end. Other work on
the machine lowers rates; ratios of processor times are stretched least.
"""

import json
import os
import tempfile
import time
from pathlib import Path

import numpy as np

from twofold.app.measure_training import read_at_once
from twofold.live.training.data_order import TokenStream
from twofold.live.training.data_preparing import DataWanted, prepare_data
from twofold.live.training.data_staging import pins_of, read_settings, stage
from twofold.live.training.token_shard import Shard

FILES, DOCUMENTS, WORDS = 4, 2_000, 200
SEQUENCES, TOKENS, STEP_S = 8, 128, 0.3  # of the laptop's example
STEPS, PART = 200_000, 20_000
VOCABULARY = 4096


def write_text(folder: Path) -> None:
    """Some text of drawn words."""
    words = np.array(["".join(map(chr, row)) for row in np.random.default_rng(1).integers(97, 123, (999, 6))])
    for number in range(FILES):
        drawn = np.random.default_rng(number).choice(words, (DOCUMENTS, WORDS))
        lines = "".join(json.dumps({"text": " ".join(row)}) + "\n" for row in drawn)
        (folder / f"{number}.jsonl").write_text(lines)


def print_staging(run: Path) -> None:
    """What staging took, by the pins."""
    pins = pins_of(run)
    size, seconds = sum(pin.size_bytes for pin in pins), sum(pin.fetch_s + pin.tokenise_s for pin in pins)
    tokens = sum(pin.token_count for pin in pins)
    print(f"staged {size / 1e6:.1f} MB as {tokens:,} tokens: {tokens / seconds:,.0f} tok/s a process")


def print_readers(run: Path) -> None:
    """Rates of one reader, and of as many as there are cores."""
    needed = SEQUENCES * TOKENS / STEP_S
    for count in sorted({1, len(os.sched_getaffinity(0))}):
        said = read_at_once(run, count, TOKENS)
        rates = [rate["tokens_per_s"] for rate in said]
        each = ", ".join(f"{rate['bytes_per_s'] / 1e6:.2f}" for rate in said)
        print(
            f"{count} readers: {each} MB/s of tokens each, {sum(rates):,.0f} tok/s in all;"
            f" the slowest reads {min(rates) / needed:,.0f} × what a step consumes"
        )


def print_long_run() -> None:
    """Processor time of reading a step, at the beginning and the end of a long run."""
    shards = [Shard(np.arange(1000, dtype=np.uint16), np.arange(20, 1001, 20)) for _ in range(3)]
    stream = TokenStream(shards.__getitem__, len(shards), 1)
    taken = []
    for begin in range(0, STEPS, PART):
        cpu_s = time.process_time()
        for step in range(begin, begin + PART):
            stream.sequence(step, 32)
        taken.append((time.process_time() - cpu_s) / PART)
    print(f"reading a step: {1e6 * taken[0]:.1f} µs at first, {1e6 * taken[-1]:.1f} µs after {STEPS:,} steps")


def main() -> None:
    """Stage, read, and read for long."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "text").mkdir()
        write_text(folder / "text")
        wanted = DataWanted(str(folder / "text"), 0, "text", 1, "", VOCABULARY, folder, 1)
        run = folder / "run"
        prepare_data(run, folder / "staged", wanted, print)
        for number in range(FILES):
            stage(run, read_settings(run), number)
        print_staging(run)
        print_readers(run)
    print_long_run()


if __name__ == "__main__":
    main()
