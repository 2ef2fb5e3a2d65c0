"""The page of a service under load: what was sent, latencies with their ranges, the knee, and the loader."""

from collections.abc import Callable, Iterator

from twofold.contracts.results import served
from twofold.core.display import format_bytes, format_memory, format_range, format_seconds, format_si
from twofold.report.lines import both_ends, heading, listed, table

UNKNOWN = "–"
BUSY_FRACTION = 0.85  # of a core, from which the loader may be what is measured
LATE_FRACTION = 0.1  # of the median latency, from which being late shows


def served_lines(page: served.ServedPage) -> list[str]:
    """The whole page, at most 100 columns wide."""
    lines = [*both_ends(page.service, page.model), ""]
    lines += listed(
        page.loads,
        ("LOAD", lambda load: load.name),
        (">sent", lambda load: _whole(load.sent)),
        (">finished", lambda load: _whole(load.finished)),
        (">refused", lambda load: _whole(load.refused)),
        (">failed", lambda load: _whole(load.failed)),
        *(() if page.unit else TOKENS),
        (">requests/s", lambda load: _figure(load.requests_per_s)),
        (f">{page.unit}/s" if page.unit else ">tok/s out", lambda load: _figure(load.output_tokens_per_s)),
    )
    rows = [row for load in page.loads for row in _latencies(load)]
    if rows:
        lines += ["", *table(HEADS, rows)]
    lines.append("")
    for load in page.loads:
        if load.reasons:
            lines += heading("LOST", load.name, *(f"{count:,} × {why}" for why, count in load.reasons))
    lines += _knee(page.knee) if page.knee else []
    lines += _client(page.loads)
    lines += [line for load in page.loads for line in (*_memory(load), *_energy(load, page.unit))]
    lines += _growth(page.growth) if page.growth else []
    lines += [line for note in page.notes for line in heading("NOTE", note)]
    return [*lines, f"wrote {page.rows_file}"] if page.rows_file else lines


TOKENS: tuple[tuple[str, Callable[[served.ServedLoad], str]], ...] = (
    (">in", lambda load: _figure(load.input_tokens)),
    (">out", lambda load: _figure(load.output_tokens)),
)
HEADS = ("LATENCY", "", "mean", "p50 [90 %]", "p95 [90 %]", "p99 [90 %]")


def _latencies(load: served.ServedLoad) -> Iterator[tuple[str, ...]]:
    said = load.name
    for name, latency in (("TTFT", load.ttft), ("TPOT", load.tpot), ("E2E", load.e2e)):
        if latency:
            mean = UNKNOWN if latency.mean_s is None else format_seconds(latency.mean_s)
            quantiles = (_ranged(each) for each in (latency.p50_s, latency.p95_s, latency.p99_s))
            yield (said, name, mean, *quantiles)
            said = ""


def _ranged(each: served.Ranged | None) -> str:
    """A quantile with its range; of a range with one end the other is a question mark."""
    if each is None:
        return UNKNOWN
    if each.low is None and each.high is None:
        return format_seconds(each.value)
    low, high = (each.value if end is None else end for end in (each.low, each.high))
    text = format_range(each.value, low, high, "s")
    if each.low is not None and each.high is not None:
        return text
    value, _, ends = text.partition(" [")
    first, _, last = ends.rstrip("]").partition("–")
    if not ends:
        return value
    return f"{value} [{'?' if each.low is None else first}–{'?' if each.high is None else last}]"


def _knee(knee: served.Knee) -> list[str]:
    if knee.rate_per_s is None:
        found = f"below {knee.broken_per_s:.4g}/s, the lowest rate that was tried"
    elif knee.broken_per_s is None:
        found = f"at {knee.rate_per_s:.4g}/s or above: every rate that was tried held"
    else:
        found = f"{knee.rate_per_s:.4g}/s held, {knee.broken_per_s:.4g}/s did not ({knee.why})"
    return heading("KNEE", found, knee.method)


def _client(loads: tuple[served.ServedLoad, ...]) -> list[str]:
    """What the loader itself took, and whether its figures can be trusted for that."""
    busy = [load for load in loads if load.client_cpu_fraction is not None]
    if not busy:
        return []
    busiest = max(busy, key=lambda load: load.client_cpu_fraction or 0.0)
    fraction = busiest.client_cpu_fraction or 0.0
    said = [f"at most {100 * fraction:.0f} % of one core ({busiest.name})"]
    late = [load for load in loads if load.lag_s_max is not None]
    if late:
        latest = max(late, key=lambda load: load.lag_s_max or 0.0)
        said.append(
            f"largest lag behind the schedule {format_seconds(latest.lag_s_max or 0.0)} ({latest.name})"
        )
        said.append("latencies count from when a request was due")
    lines = heading("LOADER", *said)
    if fraction > BUSY_FRACTION:
        lines += heading("NOTE", f"{busiest.name}: the loader itself was busy, so the service may do more")
    for load in late:
        middle = load.e2e.p50_s.value if load.e2e and load.e2e.p50_s else None
        if middle and (load.lag_s_p99 or 0.0) > LATE_FRACTION * middle:
            lag = format_seconds(load.lag_s_p99 or 0.0)
            lines += heading(
                "NOTE", f"{load.name}: 1 % of requests went {lag} late or more, by the loader's fault"
            )
    return lines


def _memory(load: served.ServedLoad) -> list[str]:
    before, peak = load.memory_before_bytes, load.memory_peak_bytes
    if before is None or peak is None:
        return []
    held = f"{load.peak_held_tokens:,.0f} tokens in flight at most" if load.peak_held_tokens else ""
    grew = f"+{format_memory(peak - before)}" if peak > before else "no growth"
    return heading(
        "MEMORY", load.name, f"{format_memory(before)} before, {format_memory(peak)} at most ({grew})", held
    )


def _growth(growth: served.Growth) -> list[str]:
    if growth.bytes_per_token <= 0:
        return heading("GROWTH", f"none with the tokens in flight, over {growth.load_count} loads")
    each, base = format_bytes(growth.bytes_per_token), format_memory(growth.base_bytes)
    off = f"the furthest off by {100 * growth.worst_fraction:.0f} % of the growth"
    line = f"a line through {growth.load_count} loads, {off}"
    return heading("GROWTH", f"{each} a token in flight, over {base}", line)


def _energy(load: served.ServedLoad, unit: str) -> list[str]:
    if load.joules_per_token is None:
        return []
    each = 1.0 / load.joules_per_token if load.joules_per_token else 0.0
    what, many = (f"unit ({unit})", unit) if unit else ("generated token", "tokens")
    said = (
        f"{format_si(load.joules_per_token, 'J')} a {what}, {each:.3g} {many} a joule (per second and watt)"
    )
    return heading("ENERGY", load.name, said, f"of the whole machine, by {load.energy_source}")


def _whole(value: int | None) -> str:
    return UNKNOWN if value is None else f"{value:,}"


def _figure(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
