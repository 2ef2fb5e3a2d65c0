"""How fast a registry takes a model in and reads it back, beside the disk's own hashing; a release's time.

All in one run, on a file of random bytes that the system is asked to let go of before each reading:
hashing it as `sha256sum` does, copying it with no digest, pushing it as a version, verifying and pulling
that. Each file was read once before, since what is below the system keeps some of what it reads, and more of
one file than of another; and a pause lets the disk write what it was given. Ratios are of medians. The
seconds of a promotion and of the way back are those of whole commands, the start of the process and, for the
first, a check of every byte included; once with nobody beside the registry, once until every replica of a
service of stand-ins runs the other version: what a real engine takes to load is its own.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from twofold.app.loop_settings import STATE_FOLDER
from twofold.app.releasing import taken
from twofold.live.control.engines import EngineSettings
from twofold.live.control.service import ServiceSettings
from twofold.live.control.supervisor import bring_down, bring_up
from twofold.live.processes import free_port
from twofold.live.registry.registry import Registry
from twofold.live.training.artefact import flush, sha256_of
from twofold.policy.release.rules import Evaluation

SIZE_BYTES = 512 << 20
ROUNDS = 5
RELEASES = 3  # of each way, beside a service
HASH, COPY, ACTIONS = "hash", "copy", ("push", "verify", "pull")
PAUSE_S = 2.0
FRACTION_MIN = 0.7  # of hashing, that pushing and verifying come to
GOAL_S = 5.0  # of a promotion, and of the way back
STUB = Path(__file__).parents[1] / "tests" / "live" / "stub_server.py"
FOUND = Evaluation("a" * 64, 5000, 2.0, calibration_error_fraction=0.0, drift_nats=0.0)


def write_model(folder: Path, size_bytes: int) -> Path:
    """A folder with one tensor of random bytes."""
    folder.mkdir()
    tensor = {"w": {"dtype": "U8", "shape": [size_bytes], "data_offsets": [0, size_bytes]}}
    header = json.dumps(tensor).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        for _ in range(size_bytes >> 20):
            file.write(os.urandom(1 << 20))
    (folder / "config.json").write_text('{"architectures": ["Random"]}')
    (folder / "tokenizer.json").write_text('{"model": {"type": "BPE", "vocab": {}, "merges": []}}')
    flush(folder / "model.safetensors")
    return folder


def seconds(action: Callable[[], object], *cold: Path) -> float:
    """Of one call; where it reads files, after these were let go of."""
    for path in cold:
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if cold:
        time.sleep(PAUSE_S)
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin


def copied(source: Path, target: Path) -> None:
    """As `cp` does it, and on the disk when it is over: to hold a push and a pull against."""
    shutil.copyfile(source, target)
    flush(target)


def command(*words: str) -> Callable[[], object]:
    """`twofold registry …` in a process of its own."""
    return lambda: subprocess.run(
        [sys.executable, "-m", "twofold", "registry", *words], check=True, capture_output=True
    )


def _rates(here: Path) -> dict[str, list[float]]:
    taken: dict[str, list[float]] = {name: [] for name in (HASH, COPY, *ACTIONS)}
    for number in range(ROUNDS):
        source = write_model(here / f"model-{number}", SIZE_BYTES)
        weights = source / "model.safetensors"
        registry = Registry(here / f"registry-{number}", make=True)
        seconds(lambda: sha256_of(weights), weights)  # noqa: B023
        taken[HASH].append(seconds(lambda: sha256_of(weights), weights))  # noqa: B023
        taken[COPY].append(seconds(lambda: copied(weights, here / "copy"), weights))  # noqa: B023
        taken["push"].append(seconds(lambda: registry.push(source, "chat", "ann"), weights))  # noqa: B023
        kept = max(registry.folder.glob("blobs/sha256/*"), key=lambda path: path.stat().st_size)
        seconds(lambda: sha256_of(kept), kept)  # noqa: B023
        taken["verify"].append(seconds(registry.verify, kept))
        taken["pull"].append(seconds(lambda: registry.pull("chat", here / "out"), kept))  # noqa: B023
        taken[HASH].append(seconds(lambda: sha256_of(kept), kept))  # noqa: B023
        registry.close()
        left = (source, here / "copy", here / "out", registry.folder)
        subprocess.run(["rm", "-rf", *left], check=True)
    return taken


def _registry(folder: Path) -> Registry:
    """One of two versions that may be released."""
    registry, here = Registry(folder, make=True), folder.parent
    for number in (1, 2):
        source = write_model(here / f"small-{number}", SIZE_BYTES // 4)
        registry.push(source, "chat", "ann")
        beside = registry.find("chat:1").digest if number == 2 else ""
        registry.evaluated(f"chat:{number}", replace(FOUND, beside=beside), "ann")
        registry.approve(f"chat:{number}", "bob", "")
    return registry


def _releases(here: Path) -> dict[str, float]:
    """Seconds of a promotion and of the way back, by the command line."""
    folder = here / "registry"
    _registry(folder).close()
    at = ("--registry", str(folder), "--by", "ann")
    return {
        "promote": max(seconds(command("promote", f"chat:{number}", *at)) for number in (1, 2)),
        "roll back": seconds(command("rollback", "chat", *at)),
    }


def _beside(here: Path) -> dict[str, list[float]]:
    """The same, until every replica of the service that follows the alias runs the version."""
    folder, state, program = here / "registry", here / STATE_FOLDER, here / "stub"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {STUB} "$@"\n')
    program.chmod(0o755)
    registry, at = _registry(folder), ("--registry", str(folder), "--by", "ann")
    command("promote", "chat:1", *at)()
    release = taken(state, registry, "chat@serving")
    registry.close()
    engine = EngineSettings(
        str(release.folder), "float32", 1, 256, 64, program=str(program), digest=release.digest
    )
    told = ServiceSettings(
        engine, 2, 8, free_port(), 0.001, 0.01, registry=str(folder.resolve()), registered="chat"
    )
    found: dict[str, list[float]] = {"promote": [], "roll back": []}
    try:
        bring_up(told, state)
        for _ in range(RELEASES):
            found["promote"].append(seconds(command("promote", "chat:2", *at)))
            found["roll back"].append(seconds(command("rollback", "chat", *at)))
    finally:
        bring_down(state)
    return found


def beside_hashing(fraction: float) -> str:
    """A rate beside the disk's own rate of hashing, and whether it is as high as it is to be."""
    how = "met" if fraction >= FRACTION_MIN else "missed"
    return f"{fraction:4.0%} of hashing, goal {FRACTION_MIN:.0%} {how}"


def main() -> None:
    """Print rates with their ratios to the disk's hashing, and the seconds of a release."""
    with tempfile.TemporaryDirectory() as folder:
        taken = _rates(Path(folder))
        released = _releases(Path(folder))
    with tempfile.TemporaryDirectory() as folder:
        beside = _beside(Path(folder))
    median_s = {what: statistics.median(times_s) for what, times_s in taken.items()}
    print(f"medians of {ROUNDS} of {SIZE_BYTES >> 20} MiB")
    for what, each_s in median_s.items():
        beside_it = f", {beside_hashing(median_s[HASH] / each_s)}" if what in ACTIONS else ""
        print(f"{what:<8} {SIZE_BYTES / each_s / 1e6:6,.0f} MB/s{beside_it}")
    for what, time_s in released.items():
        print(f"{what:<9} {time_s:5.2f} s as a command, {SIZE_BYTES >> 22} MiB checked")
    for what, times_s in beside.items():
        goal = f"goal {GOAL_S:.0f} s {'met' if max(times_s) <= GOAL_S else 'missed'}"
        took = f"{statistics.median(times_s):5.2f} s, at most {max(times_s):.2f} s of {len(times_s)}"
        print(f"{what:<9} {took}, until both replicas of a service run it: {goal}")


if __name__ == "__main__":
    main()
