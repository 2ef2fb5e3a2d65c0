"""The screen of a running service: what serves, its figures, what happened, and for `top` each replica."""

from textwrap import wrap

from twofold.live.chain_check import Checked
from twofold.live.control.status import ReplicaStatus, ServiceStatus, at_clock

WIDTH = 100


def status_lines(status: ServiceStatus) -> list[str]:
    """How it is, in two lines, what is wrong with whoever looks after it, and what happened last."""
    told = [*_tiers(status), *_overflow(status), *_troubles(status)]
    return [_named(status), _figures(status), *told, *_happened(status)]


def top_lines(status: ServiceStatus) -> list[str]:
    """The same with a row per replica."""
    busy = f"  {status.in_flight_count} in flight, {status.held_count} held   {status.url}"
    head = "  replica       state      in flight   last token   version        zone"
    rows = [_replica(each) for each in status.replicas]
    told = [*_tiers(status), *_overflow(status), *_troubles(status)]
    return [_named(status), _figures(status), *told, busy, "", head, *rows, "", *_happened(status)]


def checked_log(found: Checked) -> list[str]:
    """How much of a log of requests was read, what of it was checked, and the digest to keep elsewhere."""
    lost = f", {found.lost_count:,} lost to a full disk" if found.lost_count else ""
    torn = f", torn ends cut off: {found.torn_count:,}" if found.torn_count else ""
    count = found.line_count - found.note_count
    lines = [f"{count:,} decisions, numbers {found.first:,} to {found.number:,}{lost}{torn}"]
    if found.first > 1:
        lines.append(f"numbers below {found.first:,} are not kept: its head says so")
    if found.unended_bytes:
        lines.append(f"{found.unended_bytes:,} bytes at its end are vouched for by nothing, and say nothing")
    if found.sealed:
        none = "none before these" if found.unended_bytes else "none"
        lines.append(
            f"each hangs on the one before, and seals by the key hold: {none} was changed, moved or dropped"
        )
    else:
        lines.append("each hangs on the one before, to the newest that its head tells of")
        lines.append("no key is here: no seal was checked, and anybody could have written all of it anew")
    if found.kept_number:
        lines.append(f"number {found.kept_number:,} is as the controller kept it: no copy older than that")
    else:
        lines.append("nothing of it was kept elsewhere: an older copy of all of it would look the same")
    return [*lines, f"newest {found.digest}"]


def _named(status: ServiceStatus) -> str:
    ready = f"{status.ready_count} of {status.wanted_count} replicas ready"
    return f"{status.name}   {ready}   release {_short(status.version)}{_share(status)}"


def _figures(status: ServiceStatus) -> str:
    parts = [f"  {status.requests_per_s:.1f} req/s"]
    if status.ttft_s_p95 is not None:
        limit = f" of {status.ttft_slo_s * 1000:.0f}" if status.ttft_slo_s else ""
        parts.append(f"TTFT p95 {status.ttft_s_p95 * 1000:.0f} ms{limit}")
    parts += [f"refused {_percent(status.refused_fraction)}", f"failed {_percent(status.failed_fraction)}"]
    return "   ".join(parts)


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.1f} %"


def _share(status: ServiceStatus) -> str:
    ready = [each for each in status.replicas if each.state == "ready" and not each.model]
    share = sum(each.version == status.version for each in ready) / len(ready) if ready else 0.0
    return f" at {share:.0%}".replace("%", " %")


def _tiers(status: ServiceStatus) -> list[str]:
    """Each CPU tier: its places and its line, its p95 against its goal; and which is the bottleneck."""
    lines = []
    for each in status.tiers:
        late = "nothing passed" if each.s_p95 is None else f"p95 {each.s_p95 * 1000:.0f} ms"
        limit = f" of {each.slo_s * 1000:.0f}" if each.slo_s and each.s_p95 is not None else ""
        bound = "   the bottleneck" if each.is_bottleneck else ""
        places = f"{each.working_count} of {each.place_count} places taken, {each.waiting_count} wait"
        lines.append(f"  tier {each.name}   {places}   {late}{limit}{bound}")
    return lines


def _overflow(status: ServiceStatus) -> list[str]:
    """What the hosted API took and asks for, since the gateway's start."""
    told = status.overflow
    if told is None:
        return []
    if told.unasked:
        return [f"  no hosted API takes what finds no place: {told.unasked}"]
    how = "" if told.healthy else "; it fails, and is sent nothing for a while"
    count = f"{told.sent_count} request{'s' if told.sent_count != 1 else ''}"
    return [f"  {count} went to the hosted API, for ${told.usd:.4f}{how}"]


def _troubles(status: ServiceStatus) -> list[str]:
    lines = []
    if not status.controlled:
        lines.append("  no controller is alive: what dies stays dead until `twofold up` is called again")
    if not status.gateway_answers:
        lines.append("  the gateway does not answer")
    if status.keys:
        said = f"  nobody is let in: {status.keys}"
        lines += wrap(said, WIDTH, subsequent_indent="  ", break_long_words=False)
    if status.disk:
        what = f"the disk is {status.disk}: it serves, but logs wait in memory, and are dropped beyond 8 MiB"
        lines += [f"  {what}", "  make room, or have it take lines again: it goes on by itself"]
    if status.lost_lines:
        lines.append(f"  {status.lost_lines:,} lines of the logs are lost since the gateway's start")
    return lines


def _happened(status: ServiceStatus) -> list[str]:
    lines = [f"  {at_clock(each)}  {_subject(each.role)}{each.what}" for each in status.happened]
    return [part for line in lines for part in wrap(line, WIDTH, subsequent_indent=" " * 12)]


def _subject(role: str) -> str:
    return "" if role in ("gateway", "controller") else f"{role} "


def _replica(each: ReplicaStatus) -> str:
    heard = "-" if each.heard_ago_s is None else f"{each.heard_ago_s:.1f} s ago"
    places = f"{each.in_flight_count} of {each.in_flight_limit}"
    row = f"  {each.replica_id:<13} {each.state:<10} {places:<11} {heard:<12} {_short(each.version):<14}"
    return f"{row} {each.zone} {each.pool or each.model}".rstrip()


def _short(version: str) -> str:
    """The beginning of a digest, as all screens have it; a name is left whole."""
    digest = version.removeprefix("sha256-")
    return version if digest == version else digest[:12]
