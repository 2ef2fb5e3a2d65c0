"""`up --scale-out`: one replica more while the others serve the planned load, cold and warm.

What its starts took is written beside the spec, where plans and rehearsals take it instead of what engines
log in general; the tail meanwhile stands on the page beside that of the twin.
"""

import csv
import io
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import date
from itertools import cycle
from pathlib import Path

import numpy as np

from twofold.app.gates import ServedGate
from twofold.app.loop_page import TAIL_REQUESTS
from twofold.app.loop_settings import MACHINE, NEEDED_BYTES_PER_PROCESS, SEED, LoopRequest
from twofold.app.loop_stages import (
    SERVING_FILE,
    USERS_GONE_S,
    others_asked_ago_s,
    own_endpoint,
    own_load,
    own_load_ended_s,
)
from twofold.app.sources import STARTS_FILE
from twofold.contracts.results import loop
from twofold.contracts.rows.measured_rows import START_COLUMNS
from twofold.core.data import to_json
from twofold.core.estimate import Estimate
from twofold.live.control import trials
from twofold.live.loads import loader, loads
from twofold.live.training.artefact import write_whole
from twofold.rehearse import as_measured
from twofold.rehearse.loads import SEED_COUNT, OpenLoad
from twofold.rehearse.run import PoolTask

LEAD_S = 10.0  # of the load before anything starts
MOST_S = 600.0  # of all of it


def scaled_out(
    request: LoopRequest, artefact: Path, gate: ServedGate, measured: loop.ServingMeasured
) -> tuple[loop.ServingMeasured, tuple[str, ...]]:
    """The service with what one replica more took of it, and what is to be said of that; as it was where
    others use it, the gate decides how many replicas there are, or the memory is short."""
    import psutil

    users = others_asked_ago_s(request.state, own_load_ended_s(request.state))
    settings, free = gate.built.settings, int(psutil.virtual_memory().available)
    why = ""
    if users is not None and users < USERS_GONE_S:
        why = f"others asked it {users:.0f} s ago"
    elif request.serving.server is not None:
        why = "the service runs elsewhere"
    elif settings.scaling is not None:
        why = "`scaling` decides how many replicas there are"
    elif free < NEEDED_BYTES_PER_PROCESS:
        why = f"{free / 1e9:.1f} GB of memory are free, {NEEDED_BYTES_PER_PROCESS / 1e9:.1f} GB are needed"
    if why:
        return measured, (f"no replica more was started: {why}",)
    seen = scale_out(request, artefact)
    if seen is None:
        return measured, ("one replica more did not come in time: `twofold logs` has what it said",)
    measured = replace(measured, scale_out=seen)
    write_whole(request.state / SERVING_FILE, to_json(measured))
    path = write_starts(request, seen, date.today())
    few = seen.requests_meanwhile < TAIL_REQUESTS
    said = (
        f"{seen.requests_meanwhile} requests came while one replica more started"
        + (": p95 is little but the slowest" if few else ""),
        f"`{path.relative_to(request.state.parent)}` holds its starts: the next plan and rehearsal take them",
    )
    return measured, said


def scale_out(request: LoopRequest, artefact: Path) -> loop.ScaleOut | None:
    """Load the service as planned, start one replica more, let it go, and once more; None where the first
    one does not come."""
    told, begun, over = request.serving, threading.Event(), threading.Event()
    prompts = cycle(loader.prompts_of(artefact, told.input_tokens, seed=SEED))
    seen: list[trials.StartSeen | None] = []
    files = [path for path in artefact.iterdir() if path.is_file()]

    def deeds() -> None:
        try:
            begun.wait()
            if over.wait(LEAD_S):  # the load broke off
                return
            for cold_files in (files, []):
                request.progress(f"start one replica more, {'cold' if cold_files else 'warm'}")
                seen.append(trials.one_more(request.state, cold_files))
        finally:
            over.set()

    thread = threading.Thread(target=deeds, daemon=True)
    thread.start()
    try:
        with own_load(request.state):
            load = loader.hold_open(
                own_endpoint(request.state),
                prompts,
                arrivals_until(begun, over, told.rate_per_s),
                duration_s=MOST_S,
                max_tokens=told.output_tokens,
            )
    except BaseException:  # nobody waits for a start that nothing is measured of
        over.set()
        begun.set()
        raise
    thread.join()
    cold, warm = [*seen, None, None][:2]
    if cold is None:
        return None
    return what_came(told.replica_count, told.rate_per_s, load.answers, load.begun_s, cold, warm)


def arrivals_until(begun: threading.Event, over: threading.Event, rate_per_s: float) -> Iterator[float]:
    """A Poisson stream that says when it begins, and ends with the work that it is held for."""
    chance, at_s = np.random.default_rng(SEED), 0.0
    begun.set()
    while not over.is_set() and at_s < MOST_S:
        at_s += float(chance.exponential(1.0 / rate_per_s))
        yield at_s


def what_came(
    replica_count: int,
    rate_per_s: float,
    answers: Sequence[loads.Answer],
    begun_s: float,
    cold: trials.StartSeen,
    warm: trials.StartSeen | None,
) -> loop.ScaleOut:
    """The figures of one load in which a replica started twice."""
    done = [each for each in answers if each.outcome is loads.Outcome.FINISHED]
    before = [each for each in done if each.due_s < cold.asked_s]
    meanwhile = [each for each in done if cold.asked_s <= each.due_s < cold.serving_s]
    later = [each for each in done if warm and warm.asked_s <= each.due_s < warm.serving_s]
    usual_s, slow_s = _token_s(before), _token_s(later)
    return loop.ScaleOut(
        replica_count=replica_count,
        rate_per_s=rate_per_s,
        cold_start_s=cold.start_s,
        warm_start_s=warm.start_s if warm else None,
        memory_before_bytes=cold.memory_before_bytes,
        memory_after_bytes=cold.memory_after_bytes,
        asked_after_s=cold.asked_s - begun_s,
        serving_after_s=cold.serving_s - begun_s,
        requests_meanwhile=len(meanwhile),
        ttft_s_p95=_first_s(meanwhile),
        ttft_s_p95_before=_first_s(before),
        slow_ratio=max(1.0, slow_s / usual_s) if usual_s and slow_s else 1.0,
    )


def _first_s(answers: Sequence[loads.Answer]) -> float | None:
    times_s = [each.first_s - each.due_s for each in answers]
    return float(np.quantile(times_s, 0.95)) if times_s else None


def _token_s(answers: Sequence[loads.Answer]) -> float | None:
    """The median time of a token after the first."""
    times_s = [(e.last_s - e.first_s) / (e.output_tokens - 1) for e in answers if e.output_tokens > 1]
    return float(np.median(times_s)) if times_s else None


def twin_of(task: PoolTask, request: LoopRequest, seen: loop.ScaleOut | None) -> Estimate | None:
    """The tail while a replica starts, in the twin: with the start that was measured, and its neighbours
    slowed as they were by the other of the two. None where nothing was measured."""
    if seen is None:
        return None
    request.progress(f"rehearse one replica more in the twin, {SEED_COUNT} times")
    told = request.serving
    load = OpenLoad(
        told.class_name, seen.rate_per_s, seen.serving_after_s, told.input_tokens, told.output_tokens
    )
    takes_s = seen.serving_after_s - seen.asked_after_s
    start = as_measured.Starting(seen.asked_after_s, takes_s, seen.slow_ratio)
    return as_measured.tail_of_a_start(task, seen.replica_count, load, start)


def write_starts(request: LoopRequest, seen: loop.ScaleOut, today: date) -> Path:
    """The starts as rows beside the spec, in the place of those before."""
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    table.writerow([column.name for column in START_COLUMNS])
    beside = [seen.replica_count, f"{seen.rate_per_s:.6g}"]
    memory = [f"{size / 2**30:.6g}" for size in (seen.memory_before_bytes, seen.memory_after_bytes)]
    for kind, start_s in (("cold", seen.cold_start_s), ("warm", seen.warm_start_s)):
        if start_s is not None:
            row = [kind, MACHINE, request.serving.engine, f"{start_s:.6g}", *beside]
            table.writerow([*row, *(memory if kind == "cold" else ("", "")), f"measured {today}"])
    path = request.state.parent / STARTS_FILE
    write_whole(path, out.getvalue())
    return path
