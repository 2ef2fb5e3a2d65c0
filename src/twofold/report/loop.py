"""The page of the loop as text: planned beside measured, then what the doctor saw."""

from twofold.contracts.results import loop
from twofold.core.display import format_si
from twofold.report.figures import ranged
from twofold.report.lines import both_ends, heading, listed


def loop_lines(page: loop.LoopPage) -> list[str]:
    """The whole page, at most 100 columns wide."""
    lines = [*both_ends(f"{page.name} · planned, then real", page.machine), ""]
    for half in ("training", "serving"):
        known = [row for row in page.rows if row.planned is not None or row.measured is not None]
        own = [row for row in known if row.half == half]
        twin = [("twin", _twin)] if any(row.twin for row in own) else []
        rows = listed(
            own,
            ("", lambda row: row.name),
            ("planned, 80 % range", _planned),
            *twin,
            (
                "measured",
                lambda each: "–" if each.measured is None else f"{format_si(each.measured, each.unit)} m",
            ),
            ("", _verdict),
        )
        lines += [half.upper(), *rows, ""]
    for run in page.training:
        if recovery := run.recovery:
            same = "the same losses, bit for bit" if recovery.equal_losses else "OTHER LOSSES"
            lines += heading(
                "RECOVERED",
                f"rank {recovery.killed_rank} killed after step {recovery.killed_after_step}",
                f"resumed from step {recovery.resumed_from_step}",
                f"{recovery.repeated_steps} steps repeated: {same}",
                f"next step after {format_si(recovery.kill_to_step_s, 's')}",
            )
    for service in page.serving:
        sent, finished, refused, failed = (
            sum(getattr(load, name) for load in service.loads)
            for name in ("sent", "finished", "refused", "failed")
        )
        lines += heading(
            "SERVED",
            f"{sent:,} requests = {finished:,} finished + {refused:,} refused + {failed:,} failed",
            f"{service.replica_count} replicas of {service.engine}",
            f"artefact {service.artefact[:19]}…",
        )
    for each in page.releases:
        lines += heading("RELEASE", *release_pieces(each))
    if page.gate_digest:
        rehearsed = f"{page.gate_digest[:12]}, as `simulate` shows it"
        lines += heading("GATE", rehearsed, *(f"other than there: {each}" for each in page.differs))
    for finding in page.findings:
        mark = "ok" if finding.verdict == "ok" else "warn"
        lines += heading("DOCTOR", f"{mark} {finding.rule}: {finding.saw}", finding.advice)
    lines += [line for note in page.notes for line in heading("NOTE", note)]
    return lines + [line for each in page.missed for line in heading("MISSED", f"✗ {each}")]


def release_pieces(each: loop.ReleaseTried) -> list[str]:
    """How one release ended, in pieces of a line."""
    after = "" if each.decided_s is None else f" after {format_si(each.decided_s, 's')}"
    got = f"{each.to_release} of {each.requests} requests went to it, at a stage of {each.stage_fraction:.0%}"
    tried = [got] if each.requests else []
    return [f"{each.version}, {each.kind}: {each.outcome}{after}", *tried, *filter(None, [each.why])]


def _planned(row: loop.Row) -> str:
    planned = row.planned
    if planned and planned.low == planned.high:
        return format_si(planned.value, row.unit)  # counted, not estimated: no letter
    return ranged(planned, row.unit)


def _twin(row: loop.Row) -> str:
    return ranged(row.twin, row.unit) if row.twin else ""


def _verdict(row: loop.Row) -> str:
    """How far off the plan was: nothing to say without both."""
    if row.planned is None or row.measured is None or not row.planned.value:
        return ""
    ratio = row.measured / row.planned.value
    return f"×{ratio:.2f} outside" if row.inside is False else f"×{ratio:.2f}"
