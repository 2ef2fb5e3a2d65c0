"""The doctor: rules that look at one run's own figures and say what holds it back.

A rule is a pure function of what was measured. It answers `ok` or `warn`, always with the figures it saw: a
verdict without them cannot be argued with.
"""

import math
from collections.abc import Sequence
from dataclasses import fields
from itertools import pairwise

from twofold.contracts.results import loop

INPUT_LIMIT_FRACTION = 0.05  # of a step spent waiting for data; above it the accelerators starve
OFF_CORE_LIMIT_FRACTION = 0.20  # of compute; a quiet machine with as many threads as cores stays below 5 %
COMMUNICATION_LIMIT_FRACTION = 0.30  # of a step exposed in collectives; well-placed dense runs stay below
TAIL_MARGIN_RATIO = 1.1  # p95 over some dozens of requests moves by as much from run to run
KV_LIMIT_FRACTION = 0.80  # of the cache held at once; engines begin to preempt shortly above it


def diagnose(
    training: Sequence[loop.TrainingMeasured], serving: Sequence[loop.ServingMeasured]
) -> tuple[loop.Finding, ...]:
    """Every rule on every run and service, in a fixed order."""
    findings = [rule(run) for run in training for rule in (input_bound, busy_machine, communication_bound)]
    findings += [rule(service) for service in serving for rule in (tail_grows, kv_pressure)]
    return tuple(findings)


def input_bound(run: loop.TrainingMeasured) -> loop.Finding:
    """Warns when steps wait for data for more than INPUT_LIMIT_FRACTION of their time.

    Faster accelerators would wait longer: what helps is at the source where fetching takes most of the
    staging, and on the host where tokenising does.
    """
    share = run.data_fraction
    if share is None:  # a record of before: of a typical step
        share = run.parts.data_s / _total_s(run.parts)
    saw, slow = "of the time of its steps is spent waiting for data", ""
    if (read := run.data) and read.staged_bytes:
        slow = "tokenising" if read.tokenise_s > read.fetch_s else "the source"
        rate = read.staged_bytes / max(1e-9, max(read.fetch_s, read.tokenise_s)) / 1e6
        saw += f"; {slow} gives {rate:,.2f} MB/s of text"
    elif share > INPUT_LIMIT_FRACTION and busy_machine(run).verdict == "warn":
        saw = f"{share:.1%} {saw}, for want of cores: the machine is busy"
        return loop.Finding("input-bound", "ok", saw, "")
    remedy = {
        "the source": "stage the data nearer before the run, or read more files at once (`data_workers`)",
        "tokenising": "give staging more processes (`data_workers`) and cores, or tokenise once before",
    }.get(slow, "read ahead: more loader processes, a staging cache, tokens prepared once")
    advice = f"input bound: do not buy accelerators, they would wait too; {remedy}"
    return _held("input-bound", saw, share, INPUT_LIMIT_FRACTION, advice)


def busy_machine(run: loop.TrainingMeasured) -> loop.Finding:
    """Warns when ranks that compute wait for a core for more than OFF_CORE_LIMIT_FRACTION of that time."""
    share = run.off_core_fraction
    if share is None:
        return loop.Finding("busy-machine", "ok", "nobody measured whether ranks had their cores", "")
    saw = "of the time in which it computes, a rank waits for a core that something else has"
    advice = (
        "this machine is busy: end what runs beside, or give it fewer ranks; its step times are no measure"
    )
    return _held("busy-machine", saw, share, OFF_CORE_LIMIT_FRACTION, advice)


def communication_bound(run: loop.TrainingMeasured) -> loop.Finding:
    """Warns when collectives that nothing hides take more than COMMUNICATION_LIMIT_FRACTION of a step."""
    total_s, spent_s = _total_s(run.parts), run.parts.communication_s
    saw = f"of the time of its steps, {_ms(spent_s)} each, passes in collectives of {run.rank_count} ranks"
    advice = "shard less, raise the batch per rank, or use a faster fabric"
    return _held("communication-bound", saw, spent_s / total_s, COMMUNICATION_LIMIT_FRACTION, advice)


def tail_grows(service: loop.ServingMeasured) -> loop.Finding:
    """Warns from the first closed load on at which p95 grew by a larger share than throughput did.

    This is the knee of the plan's load curves, by the same definition but for TAIL_MARGIN_RATIO.
    """
    closed = [load for load in service.loads if load.concurrency and load.e2e]
    closed.sort(key=lambda load: load.concurrency or 0)
    if len(closed) < 2:
        return loop.Finding("tail-grows", "ok", f"{len(closed)} closed load measured: nothing to compare", "")
    for less, more in pairwise(closed):
        gained = _growth(less.requests_per_s, more.requests_per_s) + math.log(TAIL_MARGIN_RATIO)
        if _growth(_p95_s(less), _p95_s(more)) > gained:
            advice = f"admit {less.concurrency} at once, or add replicas: more load only waits"
            return loop.Finding("tail-grows", "warn", _grew(less, more), advice)
    return loop.Finding("tail-grows", "ok", _grew(closed[0], closed[-1]), "")


def kv_pressure(service: loop.ServingMeasured) -> loop.Finding:
    """Warns when requests held more than KV_LIMIT_FRACTION of the cache at once."""
    held = max((load.peak_held_tokens for load in service.loads), default=0.0)
    if not service.kv_capacity_tokens:
        saw = f"at most {held:,.0f} tokens held at once; how many its cache holds the server does not say"
        return loop.Finding("kv-pressure", "ok", saw, "")
    saw = (
        f"of the cache was held at once: at most {held:,.0f} of the {service.kv_capacity_tokens:,.0f} tokens"
        f" of {service.replica_count} replicas"
    )
    advice = "give the cache more blocks, quantise it, admit fewer at once, or add replicas"
    return _held("kv-pressure", saw, held / service.kv_capacity_tokens, KV_LIMIT_FRACTION, advice)


def _held(rule: str, saw: str, share: float, limit: float, advice: str) -> loop.Finding:
    """Warns where a share is above its limit."""
    if share <= limit:
        return loop.Finding(rule, "ok", f"{share:.1%} {saw}", "")
    return loop.Finding(rule, "warn", f"{share:.1%} (above {limit:.0%}) {saw}", advice)


def _total_s(parts: loop.StepParts) -> float:
    total_s: float = sum(getattr(parts, field.name) for field in fields(parts))
    return total_s


def _p95_s(load: loop.LoadPoint) -> float:
    return load.e2e.p95_s if load.e2e else math.inf


def _growth(before: float, after: float) -> float:
    """The logarithm of a ratio: how much something grew, whatever its unit."""
    return math.log(max(after, 1e-12) / max(before, 1e-12))


def _grew(less: loop.LoadPoint, more: loop.LoadPoint) -> str:
    return (
        f"from {less.concurrency} to {more.concurrency} clients: p95"
        f" ×{_p95_s(more) / _p95_s(less):.2f}, throughput"
        f" ×{more.requests_per_s / max(less.requests_per_s, 1e-12):.2f}"
    )


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:,.1f} ms"
