"""The page of training runs on this machine: steps and their parts, what differs, readers, conditions."""

from collections.abc import Iterator

from twofold.contracts.results import trained
from twofold.core.display import format_bytes, format_count, format_seconds, format_si
from twofold.report.lines import both_ends, heading, listed

UNKNOWN = "–"


def trained_lines(page: trained.TrainedPage) -> list[str]:
    """The whole page, at most 100 columns wide."""
    lines = [*both_ends(page.model, page.machine), ""]
    lines += listed(
        page.runs,
        ("RUN", lambda run: run.name),
        (">step", lambda run: format_seconds(run.measured.step_s_p50)),
        (">p10 – p90", _spread),
        (">tok/s", lambda run: format_count(run.measured.tokens_per_step / run.measured.step_s_p50)),
        (">last loss", lambda run: f"{run.measured.last_loss:.4f}"),
        (">held out", lambda run: UNKNOWN if run.held_out_loss is None else f"{run.held_out_loss:.4f}"),
        (">memory", lambda run: format_bytes(run.measured.peak_memory_bytes)),
    )
    lines += ["", *_parts(page), ""]
    for ratio in page.ratios:
        lines += heading("RATIO", ratio.what, *_ratio_pieces(ratio))
    lines += _checkpoints(page.runs)
    for run in page.runs:
        if run.branched_from_step is not None:
            where = f"from step {run.branched_from_step} of {page.runs[0].name}"
            own = f"{run.measured.steps} steps of its own to loss {run.measured.last_loss:.4f}"
            lines += heading("BRANCH", run.name, where, f"sha256 {run.branched_from_sha256[:12]}", own)
    for run in page.runs[:1]:
        if run.slowest_collective:
            lines += heading("COLLECTIVE", run.name, run.slowest_collective)
    for reading in page.readings:
        each = ", ".join(format_si(rate, "B/s") for rate in reading.bytes_per_s_each)
        total = format_si(sum(reading.bytes_per_s_each), "B/s")
        times = f"{reading.times_needed:,.0f} × what a rank consumes"
        lines += heading("LOADER", f"{reading.readers} at once: {each}", f"{total} in all", times)
    sums = page.accumulation
    off = f"in fp32 {sums.fp32_error_fraction:.1e} off, in bf16 {sums.bf16_error_fraction:.1e}"
    lines += heading("SUMS", f"of bf16 products on {sums.device}", off)
    lines += [line for run in page.runs for line in _conditions(run)]
    for finding in page.findings:
        pieces = (finding.saw, finding.advice) if finding.advice else (finding.saw,)
        lines += heading("DOCTOR", f"{finding.rule} {finding.verdict}", *pieces)
    lines += [line for note in page.notes for line in heading("NOTE", note)]
    return [*lines, *([f"wrote {page.rows_file}"] if page.rows_file else [])]


def _ratio_pieces(ratio: trained.Ratio) -> Iterator[str]:
    """Measured, planned, whether the range holds; how far losses are apart, beside how far they may be."""
    yield f"step × {ratio.step_ratio:.2f}"
    if planned := ratio.planned:
        within = planned.low <= ratio.step_ratio <= planned.high
        ends = f"[{planned.low:.2f}–{planned.high:.2f}], {'within' if within else 'OUTSIDE'}"
        yield f"planned × {planned.value:.2f} {ends}"
    limit = f"{100 * ratio.loss_limit_fraction:g} %"
    holds = ratio.loss_distance_fraction <= ratio.loss_limit_fraction
    may = f"at most {limit}" if holds else f"MORE than {limit}"
    yield f"last losses {ratio.loss_distance_fraction:.2%} apart, {may}"


def _spread(run: trained.TrainedRun) -> str:
    return f"{format_seconds(run.measured.step_s_p10)} – {format_seconds(run.measured.step_s_p90)}"


def _parts(page: trained.TrainedPage) -> list[str]:
    """Shares of a step, a column a part."""

    def share(run: trained.TrainedRun, *names: str) -> str:
        parts = run.measured.parts
        return f"{sum(getattr(parts, name) for name in names) / run.measured.step_s_p50:.1%}"

    return listed(
        page.runs,
        ("OF A STEP", lambda run: run.name),
        (">data", lambda run: share(run, "data_s")),
        (">forward", lambda run: share(run, "forward_s")),
        (">backward", lambda run: share(run, "backward_s")),
        (">collectives", lambda run: share(run, "communication_s")),
        (">optimiser", lambda run: share(run, "optimiser_s")),
        (">saving", lambda run: share(run, "checkpoint_s")),
        (">rest", lambda run: share(run, "other_s")),
    )


def _checkpoints(runs: tuple[trained.TrainedRun, ...]) -> list[str]:
    measured = runs[0].measured
    pieces = [
        f"{format_bytes(measured.checkpoint_bytes)} in {format_seconds(measured.checkpoint_write_s)}",
        f"blocks {format_seconds(measured.parts.checkpoint_s)} of a step on average",
    ]
    if recovery := measured.recovery:
        equal = "equal" if recovery.equal_losses else "OTHER"
        pieces.append(f"kill to next step {format_seconds(recovery.kill_to_step_s)}, {equal} losses")
    return heading("CHECKPOINT", *pieces)


def _conditions(run: trained.TrainedRun) -> list[str]:
    told, pieces = run.conditions, list[str]()
    whose = "" if told.clock_of == "cores" else f" of {told.clock_of}"
    if told.energy_j is not None and told.tokens_per_j is not None:
        pieces.append(f"{told.tokens_per_j:.3g} tok/J by {told.energy_source}")
    if told.clock_hz_mean is not None and told.clock_hz_min is not None:
        mean, least = (f"{each / 1e9:.2f} GHz" for each in (told.clock_hz_mean, told.clock_hz_min))
        pieces.append(f"clock{whose} {mean}, at least {least}")
    if told.temperature_c_max is not None:
        pieces.append(f"at most {told.temperature_c_max:.0f} °C")
    if told.throttled_fraction is not None:
        pieces.append(f"throttled {told.throttled_fraction:.0%} of the time")
    return heading("MACHINE", run.name, *pieces) if pieces else []
