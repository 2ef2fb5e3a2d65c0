"""`up --prove`: calibrate on one half, freeze what the twin says of four scenarios, run them live, compare.

What is compared was written and hashed before any of it was run; that file is looked at again at the end,
and its digest must be the one that was told.
"""

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from twofold.app.loop_settings import OnProgress
from twofold.app.proof_calibration import SEEN_COUNT, Bench, Calibration, calibrate
from twofold.app.proof_figures import KINDS, Figures, figures_of, frozen_figure, unit_of
from twofold.app.proof_runs import LiveRan, Standing, run_live
from twofold.app.proof_scenarios import (
    KILLED,
    RELEASE,
    STEADY_FRACTION,
    Scene,
    Traffic,
    scenarios_of,
    scene,
)
from twofold.contracts.results import proof
from twofold.core.data import from_data, to_data, to_json
from twofold.core.display import format_seconds
from twofold.core.errors import AlteredError
from twofold.core.estimate import Estimate
from twofold.live.line_file import wall_text
from twofold.live.loads.texts import Texts, halves
from twofold.live.training.artefact import write_whole
from twofold.measure import proof_goals
from twofold.rehearse import as_measured
from twofold.rehearse.run import PoolTask
from twofold.twin.serving.traffic import TrafficModel

FROZEN_SCHEMA = "twofold/frozen/1"
FROZEN_FILE = "frozen.json"
LIVE_RUNS = 2
TWIN_RUNS = 16  # of the same requests, whose answers go other ways
USUAL_COUNT = 400


@dataclass(frozen=True, slots=True)
class Proving:
    """What a proof is made with: a service that stands, its plan in the twin, and how its requests are."""

    standing: Standing
    task: PoolTask
    model: TrafficModel
    texts: Texts
    folder: Path  # where it keeps what it writes
    seed: int = 0
    finished_count: int = USUAL_COUNT
    seen_count: int = SEEN_COUNT  # requests of each rate that it calibrates with
    scenarios: tuple[str, ...] = ()  # none: those that so many requests can tell something of
    tell: OnProgress = lambda _: None


@dataclass(frozen=True, slots=True)
class Frozen:
    """What was written before anything was run live."""

    sha256: str
    at: str
    said: Mapping[str, Mapping[str, Estimate | None]]  # by scenario and figure


@dataclass(frozen=True, slots=True)
class Proved:
    """What a proof came to, before a page is made of it."""

    calibration: Calibration
    rate_per_s: float
    frozen: Frozen
    rows: tuple[proof.ProofRow, ...]
    runs: tuple[proof.ProofRun, ...]
    others_asked: int


def proved(asked: Proving) -> Proved:
    """All of it, in its order. Raises RunError, and AlteredError for a frozen file that was changed."""
    ours, theirs = halves(asked.texts, asked.seed)
    bench = Bench(asked.standing, asked.task, asked.model, ours, asked.seed, asked.seen_count)
    calibration = calibrate(bench, asked.tell)
    traffic = Traffic(
        asked.model,
        STEADY_FRACTION * calibration.knee_per_s,
        calibration.answers,
        calibration.release_factor,
        calibration.there,
    )
    names = asked.scenarios or scenarios_of(asked.finished_count)
    asked.tell("rehearse: " + ", ".join(names))
    say = partial(said_of, asked, calibration, traffic)
    frozen = freeze(asked, calibration, traffic, {name: say(name) for name in names})
    asked.tell(f"frozen: sha256 {frozen.sha256} at {frozen.at}")
    scenes = [scene(each, traffic, asked.finished_count, asked.seed, 0) for each in names]
    lasts_s = LIVE_RUNS * sum(each.arrivals[-1].arrival_s for each in scenes)
    asked.tell(f"to run live: {', '.join(names)}, {LIVE_RUNS} times, {format_seconds(lasts_s)} of requests")
    live: dict[str, list[LiveRan]] = {name: [] for name in names}
    runs = []
    for number in range(LIVE_RUNS):
        for name in names:
            asked.tell(f"live: {name}, run {number + 1} of {LIVE_RUNS}")
            played = scene(name, traffic, asked.finished_count, asked.seed, number)
            ran = run_live(asked.standing, played.arrivals, theirs, played.fault)
            live[name].append(ran)
            runs.append(_run_of(played, ran))
    check_frozen(asked.folder, frozen)
    least = asked.finished_count
    rows = [row for name in names for row in rows_of(name, calibration, frozen, live[name], least)]
    others = sum(each.others_asked for every in live.values() for each in every)
    return Proved(calibration, traffic.rate_per_s, frozen, tuple(rows), tuple(runs), others)


def said_of(
    asked: Proving, calibration: Calibration, traffic: Traffic, scenario: str
) -> dict[str, Estimate | None]:
    """The twin's answer to one scenario."""
    runs: list[Figures] = []
    for number in range(TWIN_RUNS):
        played = scene(scenario, traffic, asked.finished_count, asked.seed, number)
        times = calibration.fit.times
        world = as_measured.as_deployed(asked.task, calibration.there, times, played.faults, played.seed)
        ran = as_measured.rehearsed(world, played.arrivals)
        runs.append(_figures(scenario, ran))
    off = calibration.fit.off_fraction
    return {name: frozen_figure(name, [run[name] for run in runs], off) for name in runs[0]}


def freeze(
    asked: Proving,
    calibration: Calibration,
    traffic: Traffic,
    said: Mapping[str, Mapping[str, Estimate | None]],
) -> Frozen:
    """Write what the twin said, with all that it rests on; from here on it stays as it is."""
    at = wall_text(time.time())
    data = {
        "schema": FROZEN_SCHEMA,
        "at": at,
        "seed": asked.seed,
        "finished_count": asked.finished_count,
        "gate_digest": asked.task.gate.digest,
        "rate_per_s": traffic.rate_per_s,
        "calibration": to_data(calibration),
        "said": to_data(said),
    }
    text = to_json(data)
    write_whole(asked.folder / FROZEN_FILE, text)
    return _frozen(text)


def check_frozen(folder: Path, frozen: Frozen) -> None:
    """Raises AlteredError unless the file still holds what was told before the runs."""
    path = folder / FROZEN_FILE
    try:
        now = _frozen(path.read_text("utf-8"))
    except (OSError, ValueError, KeyError) as error:
        raise _altered(path, f"cannot be read: {error}") from error
    if now.sha256 != frozen.sha256:
        raise _altered(path, f"has sha256 {now.sha256[:16]}…, and {frozen.sha256[:16]}… was told")


def _altered(path: Path, what: str) -> AlteredError:
    return AlteredError(f"`{path}` {what}", hint="what was rehearsed must stay as it was: prove it again")


def _frozen(text: str) -> Frozen:
    data: dict[str, Any] = json.loads(text)
    said = {
        name: {key: None if value is None else from_data(Estimate, value) for key, value in each.items()}
        for name, each in data["said"].items()
    }
    return Frozen(hashlib.sha256(text.encode()).hexdigest(), data["at"], said)


def rows_of(
    scenario: str, calibration: Calibration, frozen: Frozen, live: Sequence[LiveRan], least: int
) -> list[proof.ProofRow]:
    """What was frozen of a scenario beside its live runs, judged; at least `least` requests are to finish."""
    found = [_figures(scenario, each.ran) for each in live]
    return [
        proof_goals.judged(
            proof_goals.Figure(
                scenario,
                name,
                unit_of(name),
                KINDS[name],
                None,
                twin,
                tuple(figures[name] for figures in found),
                float(least),
            ),
            calibration.there.cold_start_s,
        )
        for name, twin in frozen.said[scenario].items()
    ]


def _figures(scenario: str, ran: Any) -> Figures:
    return figures_of(ran, killed=scenario == KILLED, released=scenario == RELEASE)


def _run_of(played: Scene, ran: LiveRan) -> proof.ProofRun:
    counts = figures_of(ran.ran)
    sent, refused, lost = len(ran.ran.seen), counts["refused"] or 0.0, counts["lost"] or 0.0
    finished = sent - int(refused) - int(lost)
    return proof.ProofRun(played.scenario, played.seed, sent, finished, int(refused), int(lost), ran.use)
