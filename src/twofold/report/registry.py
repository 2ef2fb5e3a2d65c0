"""The screens of the registry: versions, one version, moves, checks, where a version comes from."""

import math
from collections.abc import Sequence
from pathlib import Path

from twofold.core.display import format_si
from twofold.live.registry.registry import MARKED, Described
from twofold.live.registry.tables import AliasMove
from twofold.policy.release.rules import Evaluation, Refusal
from twofold.report.lines import field, heading, table

SHORT = 19  # of `sha256:…`
DONE = {"push": "pushed", "approve": "approved", "evaluate": "evaluated", "attach": "signed"}
DONE |= {"decide": "trial ended"}
LOSS_SHOWN_MOST = 100.0  # nats, up to which a perplexity is a number


def listed(versions: Sequence[Described]) -> list[str]:
    """A row per version, then what is off with any."""
    if not versions:
        return ["no versions"]
    rows = [
        (
            each.version.text,
            each.version.digest[:SHORT],
            "✗" if each.off else format_si(each.stored.size_bytes, "B"),
            each.version.pushed_at[:10],
            each.version.pushed_by,
            ", ".join(each.aliases),
            "" if each.evaluation is None else f"{each.evaluation.loss_nats:.4f}",
        )
        for each in versions
    ]
    heads = ("version", "digest", "size", "pushed", "by", "alias", "loss, nats")
    off = [f"  ✗ {each.version.text}: {each.off}" for each in versions if each.off]
    return [*table(heads, rows, numbers=(2, 6)), *off]


def shown(described: Described, refused: Sequence[Refusal]) -> list[str]:
    """Facts, lineage, approvals, evaluation, what would refuse its release, then its name's log."""
    version, facts = described.version, described.stored.facts
    made_from = [f"{kind} {digest[:SHORT]}" for kind, digest in dict(facts.get(MARKED, {})).items()]
    size, count = format_si(described.stored.size_bytes, "B"), len(described.stored.files)
    parameters = format_si(facts.get("parameter_count", 0), "") if facts.get("parameter_count") else ""
    return [
        *heading(version.text, version.digest, *(f"is `{each}`" for each in described.aliases)),
        *field("pushed", f"{version.pushed_at[:19]} by {version.pushed_by}", f"{count} files, {size}"),
        *field("model", str(facts.get("architecture", "")), parameters, ", ".join(facts.get("dtypes", ()))),
        *field("made from", *made_from),
        *_signed(described),
        *field("approved", ", ".join(described.approved_by) or "by nobody"),
        *_evaluation(described.evaluation, described.evaluation_digest),
        *_quantised(described),
        *([] if described.sealed else ["  ✗ not sealed by this registry's key"]),
        *(f"  ✗ {each.rule}: {each.figure}; passes: {each.passes}" for each in refused),
        *_log(described),
    ]


def _log(described: Described) -> list[str]:
    """The last lines of the log of its name: when, which version, what by whom, and why or by which rules."""
    last, lines = described.log or (), list[str]()
    if described.log_count > len(last):
        lines = field("log", f"the last {len(last)} of {described.log_count} lines")
    for each in last:
        name, _, number = each.on.rpartition(":")
        on, done = each.on, DONE.get(each.what, each.what)
        if each.alias:
            is_cleared = number == "0"
            on, done = (name, f"`{each.alias}` cleared") if is_cleared else (on, f"made `{each.alias}`")
        rules = (f"{rule}: {found}" for rule, found in each.rules)
        said = (f"{each.at[:19]}Z", on, f"{done} by {each.by}", each.why, *rules)
        lines += field("" if lines else "log", *map(_plain, said))
    return lines


def _plain(text: str) -> str:
    """On one line, whatever somebody wrote."""
    return " ".join("".join(each if each.isprintable() else " " for each in text).split())


def _signed(described: Described) -> list[str]:
    """How often it was signed; nothing of what nobody signed, as most are."""
    count = described.signature_count
    return field("signed", f"by {count} key{'s' * (count != 1)}") if count else []


def _evaluation(found: Evaluation | None, digest: str) -> list[str]:
    if found is None:
        return field("evaluated", "never")
    pieces = [f"loss {found.loss_nats:.4f} nats over {found.token_count:,} tokens"]
    if found.loss_nats < LOSS_SHOWN_MOST:
        pieces.append(f"perplexity {math.exp(found.loss_nats):.4g}")
    if found.calibration_error_fraction is not None:
        pieces.append(f"calibration error {found.calibration_error_fraction:.3f}")
    if found.drift_nats is not None:
        pieces.append(f"drift {found.drift_nats:.4f} nats")
    times = (("TTFT", found.ttft_p95_s), ("TPOT", found.tpot_p95_s))
    pieces += [f"{name} p95 {format_si(value, 's')}" for name, value in times if value is not None]
    if found.memory_bytes is not None:
        pieces.append(f"{format_si(found.memory_bytes, 'B')} of memory")
    pieces += [
        f"{each.name} {each.right_fraction:.1%} of {each.question_count} questions" for each in found.tasks
    ]
    if found.failed_slices:
        pieces.append(f"worse at {', '.join(found.failed_slices)}")
    report = f"report {digest[:SHORT]}" if digest else ""
    return field("evaluated", *pieces, found.engine, report)


def _quantised(described: Described) -> list[str]:
    """How much worse it predicts than what it was quantised from, where both were asked the same."""
    now, before = described.evaluation, described.before_quantised
    if not described.quantised_from:
        return []
    if now is None or before is None or now.set_sha256 != before.set_sha256:
        return field("quantised", "not yet compared with what it was made from")
    old, new = math.exp(before.loss_nats), math.exp(now.loss_nats)
    return field("quantised", f"perplexity {new:.4g}, {new / old - 1.0:+.2%} of the {old:.4g} before")


def moved(move: AliasMove) -> list[str]:
    """Who let what mean which, and why."""
    said = f"{move.name}@{move.alias} is version {move.version}, by {move.by}, {move.at[:19]}"
    return [f"{said}: {move.why or 'no reason'}"]


def verified(versions: Sequence[Described], log_lines: int, copies: Sequence[Path] = ()) -> list[str]:
    """What was read, and which copies of it."""
    files = {each.sha256: each.size_bytes for version in versions for each in version.stored.files}
    count, size = len(versions), format_si(sum(files.values()), "B")
    lines = f"{log_lines} line{'s' * (log_lines != 1)} of log"
    said = f"{count} version{'s' * (count != 1)}, {len(files)} files, {size}, {lines}"
    return [f"{said}: all as pushed", *(f"copy  {each}: every file as pushed" for each in copies)]


def traced(steps: Sequence[tuple[str, str]], aliases: Sequence[str], served_at: str) -> list[str]:
    """A line each: where it answers, what it is called, then what, and its digest."""
    width = max(len(what) for what, _ in steps)
    lines = [f"{what:<{width}}  {digest}" for what, digest in steps]
    served = [f"{'served at':<{width}}  {served_at}"] if served_at else []
    return [*served, *(f"{'serves as':<{width}}  {each}" for each in aliases), *lines]


def rerun_lines(
    text: str, weights: str, again: str, differences: Sequence[tuple[str, str, str]]
) -> list[str]:
    """Whether a second training gave the same weights; what else is other than it was then."""
    same = weights == again
    told = f"equal, {weights[:12]}" if same else f"✗ other: {again[:12]}, not {weights[:12]}"
    others = [f"{what}: {was[:32]} then, {found[:32]} now" for what, was, found in differences]
    return [
        *heading(text, "trained again from its lineage"),
        *field("weights", told),
        *field("lineage", *(others or ["data, code, settings and libraries as they were"]), separator="; "),
    ]
