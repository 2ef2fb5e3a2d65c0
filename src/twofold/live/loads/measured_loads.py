"""One load after another on an endpoint, each with its meters, each as figures with their ranges."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from twofold.contracts.results import served
from twofold.contracts.rows.trace_rows import Arrival
from twofold.core.errors import ValueRefusedError
from twofold.live.loads.loader import Endpoint, Prompt, hold_closed, hold_open
from twofold.live.loads.loads import (
    ARRIVAL_LIMIT_COUNT,
    Answer,
    Load,
    Outcome,
    burst_arrivals_s,
    load_point,
    poisson_arrivals_s,
    token_times_s,
)
from twofold.live.loads.meters import Meters
from twofold.live.loads.serving_figures import knee_of, latency_of
from twofold.live.loads.texts import Texts

WARM_UP_REQUESTS = 2
DOUBLINGS_MOST = 10
HALVINGS = 4  # of the gap between a rate that held and one that did not: to a sixteenth of it


@dataclass(frozen=True, slots=True)
class Loading:
    """What every load of one page shares. The texts are drawn on from load to load."""

    endpoint: Endpoint
    texts: Texts
    input_tokens: int
    output_tokens: int
    duration_s: float
    seed: int
    pid: int | None = None
    reads_energy: bool = False


def warm_up(loading: Loading) -> None:
    """A few answers that count nowhere. Raises ValueRefusedError where none of them is whole."""
    load = _closed(loading, WARM_UP_REQUESTS, request_count=WARM_UP_REQUESTS)
    if not any(each.outcome is Outcome.FINISHED for each in load.answers):
        reason = load.answers[0].reason
        hint = "is the prompt with its answer longer than the model's context? `--input`, `--output`"
        raise ValueRefusedError(f"{loading.endpoint.url} finished no request: {reason}", hint=hint)


def closed(loading: Loading, concurrency: int) -> served.ServedLoad:
    """So many clients for the load's time."""
    run = lambda: _closed(loading, concurrency, duration_s=loading.duration_s)  # noqa: E731
    return _measured(loading, f"closed-{concurrency}", "closed", run, concurrency=concurrency)


def opened(loading: Loading, rate_per_s: float, burst_count: int = 1) -> served.ServedLoad:
    """A Poisson stream at a rate for the load's time, of bursts where these are more than one request."""
    name, kind = f"open-{rate_per_s:g}", "open"
    arrivals_s = poisson_arrivals_s(rate_per_s, loading.duration_s, loading.seed)
    if burst_count > 1:
        name, kind = f"bursts-{rate_per_s:g}x{burst_count}", "bursts"
        arrivals_s = burst_arrivals_s(rate_per_s, burst_count, loading.duration_s, loading.seed)
    if not arrivals_s:
        what = f"no request comes at {rate_per_s:g}/s within {loading.duration_s:g} s"
        raise ValueRefusedError(what, hint="a higher rate, or a longer load")
    prompts = loading.texts.endless(loading.input_tokens)
    run = lambda: _open(loading, prompts, arrivals_s, loading.duration_s)  # noqa: E731
    return _measured(loading, name, kind, run, rate_per_s=rate_per_s)


def replayed(loading: Loading, arrivals: Iterator[Arrival], scale: float) -> served.ServedLoad:
    """The requests of a trace within the load's time, `scale` times as fast as they came, each with its own
    lengths."""
    taken: list[Arrival] = []
    for each in arrivals:
        if each.arrival_s / scale >= loading.duration_s:
            break
        taken.append(each)
        if len(taken) > ARRIVAL_LIMIT_COUNT:
            what = f"more than {ARRIVAL_LIMIT_COUNT:,} requests of the trace fall into the load's time"
            raise ValueRefusedError(what, hint="a shorter load, or a smaller scale")
    times_s = [each.arrival_s / scale for each in taken]
    prompts = (
        loading.texts.prompt(max(1, round(each.input_tokens)), max(1, round(each.output_tokens)))
        for each in taken
    )
    held_s = loading.duration_s
    run = lambda: _open(loading, prompts, times_s, held_s)  # noqa: E731
    rate_per_s = len(taken) / held_s
    return _measured(loading, f"replay-{scale:g}x", "replay", run, rate_per_s=rate_per_s)


def find_knee(
    loading: Loading,
    first_per_s: float,
    limit_s: float | None,
    whose: str,
    tell: Callable[[str], None],
) -> list[served.ServedLoad]:
    """Loads at rates that double from the first until one does not hold, then halve the gap between."""
    loads: list[served.ServedLoad] = []
    rate_per_s = first_per_s
    for _ in range(DOUBLINGS_MOST + HALVINGS):
        tell(f"load: {rate_per_s:.4g} requests/s")
        loads.append(opened(loading, rate_per_s))
        knee = knee_of(loads, limit_s, whose)
        if knee is None or (knee.rate_per_s is None and knee.broken_per_s is not None):
            break  # not even the first rate held
        if knee.broken_per_s is None:
            if len(loads) >= DOUBLINGS_MOST:
                break
            rate_per_s *= 2
        elif len(loads) >= DOUBLINGS_MOST + HALVINGS or knee.rate_per_s is None:
            break
        else:
            gap = knee.broken_per_s - knee.rate_per_s
            if gap <= knee.rate_per_s / 2**HALVINGS:
                break
            rate_per_s = knee.rate_per_s + gap / 2
    return sorted(loads, key=lambda load: load.rate_per_s or 0.0)


def _closed(
    loading: Loading, concurrency: int, duration_s: float | None = None, request_count: int | None = None
) -> Load:
    return hold_closed(
        loading.endpoint,
        loading.texts.endless(loading.input_tokens),
        concurrency,
        max_tokens=loading.output_tokens,
        duration_s=duration_s,
        request_count=request_count,
    )


def _open(loading: Loading, prompts: Iterator[Prompt], arrivals_s: Sequence[float], held_s: float) -> Load:
    tokens = loading.output_tokens
    return hold_open(loading.endpoint, prompts, arrivals_s, duration_s=held_s, max_tokens=tokens)


def _measured(
    loading: Loading,
    name: str,
    kind: str,
    run: Callable[[], Load],
    *,
    concurrency: int | None = None,
    rate_per_s: float | None = None,
) -> served.ServedLoad:
    with Meters(loading.pid, loading.reads_energy) as meters:
        load = run()
    point = load_point(name, load, concurrency=concurrency, rate_per_s=rate_per_s)
    finished = [each for each in load.answers if each.outcome is Outcome.FINISHED]
    lags_s = [each.lag_s for each in load.answers] if concurrency is None else []
    generated = sum(each.output_tokens for each in finished)
    energy_j, units = meters.energy_j, loading.endpoint.units
    whole = units is not None
    return served.ServedLoad(
        name=name,
        kind=kind,
        concurrency=concurrency,
        rate_per_s=rate_per_s,
        input_tokens=None if whole else point.input_tokens or None,
        output_tokens=point.output_tokens or None,
        lengths="trace" if kind == "replay" else "fixed",
        sent=point.sent,
        finished=point.finished,
        refused=point.refused,
        failed=point.failed,
        reasons=_reasons(load.answers),
        requests_per_s=point.requests_per_s,
        output_tokens_per_s=point.requests_per_s * units if units else point.output_tokens_per_s,
        ttft=None if whole else latency_of([each.first_s - each.due_s for each in finished]),
        tpot=None if whole else latency_of(token_times_s(load)),
        e2e=latency_of([each.ended_s - each.due_s for each in finished]),
        duration_s=loading.duration_s,
        client_cpu_fraction=load.cpu_s / load.wall_s if load.wall_s else None,
        lag_s_max=max(lags_s, default=None),
        lag_s_p99=float(np.quantile(lags_s, 0.99)) if lags_s else None,
        memory_before_bytes=meters.memory_before_bytes,
        memory_peak_bytes=meters.memory_peak_bytes,
        peak_held_tokens=point.peak_held_tokens,
        joules_per_token=energy_j / generated if energy_j is not None and generated else None,
        energy_source=meters.energy_source,
    )


def _reasons(answers: Sequence[Answer]) -> tuple[tuple[str, int], ...]:
    """Why requests were lost, the most frequent reason first."""
    lost = Counter(each.reason for each in answers if each.outcome is not Outcome.FINISHED)
    return tuple(sorted(lost.items(), key=lambda each: (-each[1], each[0])))
