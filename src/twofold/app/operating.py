"""`status`, `top` and `logs`: how a service that `up` started is, and what its programs said."""

import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from twofold.app.looping import known_state
from twofold.core.data import to_data
from twofold.core.errors import AlteredError, FileError, Place, UsageError, ValueRefusedError
from twofold.core.extras import require_extra
from twofold.live.chain_check import Checked
from twofold.live.control.kept_log import check_log
from twofold.live.control.status import ServiceStatus, service_status
from twofold.live.gateway.request_log import requests_log
from twofold.live.processes import log_path
from twofold.report.answers import Shown
from twofold.report.service import checked_log, status_lines, top_lines

HAPPENED_COUNT = 8
TOP_EVERY_S = 1.0
LOG_LINES = 50
FOLLOW_EVERY_S = 0.25
TAIL_BYTES = 1 << 20  # in which the last lines are looked for
# The controller asks twice a second: an engine's log is little else.
CHECK = re.compile(r"GET \S*/(health|metrics)\b.*\b200\b")
HINT_SEALED = "every line before this place is as the gateway wrote it; restore the rest from a copy"
HINT_CHAINED = "every line before this place fits the one before it; without the key nobody knows the writer"

OnText = Callable[[str], bool]  # shows a text; whether somebody watches, so that more is worth showing


@dataclass(frozen=True, slots=True)
class ShownStatus(Shown):
    """How a service is. Exits 3 unless all that is to serve does."""

    schema = "twofold/status/1"
    status: ServiceStatus
    with_replicas: bool = False

    @property
    def lines(self) -> list[str]:
        """One screen."""
        return top_lines(self.status) if self.with_replicas else status_lines(self.status)

    @property
    def as_data(self) -> dict[str, Any]:
        """All of it, with the three sums that people look for first."""
        found = self.status
        sums = {"well": found.is_well, "ready": found.ready_count, "wanted": found.wanted_count}
        return {**sums, **to_data(found)}

    @property
    def exit_code(self) -> int:
        return 0 if self.status.is_well else 3


@dataclass(frozen=True, slots=True)
class ShownLogs(Shown):
    """The ends of logs, by the program that wrote them."""

    schema = "twofold/logs/1"
    logs: dict[str, tuple[str, ...]]
    left_out: dict[str, int] = field(default_factory=dict)  # lines of checks among them

    @property
    def lines(self) -> list[str]:
        """Each line behind its program's name, where there are several; then how many are left out."""
        lines = []
        for role, said in self.logs.items():
            name = f"{role}: " if len(self.logs) > 1 else ""
            lines += [f"{name}{line}" for line in said]
            if count := self.left_out.get(role, 0):
                lines.append(f"{name}({count:,} checks of health and metrics, answered 200, are left out)")
        return lines


@dataclass(frozen=True, slots=True)
class ShownLogCheck(Shown):
    """A log of requests in which nothing was found; what was looked for, its lines say."""

    schema = "twofold/log-check/1"
    checked: Checked

    @property
    def lines(self) -> list[str]:
        """How much there is, what was checked and what could not be, and the digest to keep elsewhere."""
        return checked_log(self.checked)


def status(spec: Path) -> ShownStatus:
    """How the service of a spec is. Raises FileError when none was brought up."""
    require_extra("live")
    return ShownStatus(service_status(known_state(spec), HAPPENED_COUNT))


def top(spec: Path, tell: OnText) -> ShownStatus:
    """The same, shown anew every second until Ctrl-C; once where nobody watches."""
    require_extra("live")
    state = known_state(spec)
    shown = ShownStatus(service_status(state, HAPPENED_COUNT), with_replicas=True)
    with suppress(KeyboardInterrupt):
        while tell("\n".join(shown.lines)):
            time.sleep(TOP_EVERY_S)
            shown = ShownStatus(service_status(state, HAPPENED_COUNT), with_replicas=True)
    return shown


def logs_or_check(
    spec: Path, tell: OnText, role: str = "", follow: bool = False, verify: bool = False
) -> ShownLogs | ShownLogCheck:
    """The ends of logs; with `verify` whether the log of requests is as it was written."""
    if verify and (role or follow):
        raise UsageError("`--verify` reads the log of requests to its end", hint="write it with SPEC alone")
    return verify_log(spec) if verify else logs(spec, tell, role, follow)


def verify_log(spec: Path) -> ShownLogCheck:
    """Whether the gateway's log of requests is as it wrote it: of a spec, or a copy of `requests.jsonl`.

    Of a copy without its key the chain alone is checked. Raises FileError where there is none, where a
    service's key is gone, or where a copy has no head: a cut one would look the same; AlteredError with the
    first place where it is not.
    """
    is_copy = spec.suffix == ".jsonl"
    found = check_log(spec if is_copy else requests_log(known_state(spec)), is_copy=is_copy)
    is_unsure = found.headless and found.line_count and not found.sealed and len(found.broken) == 1
    if is_copy and is_unsure:
        raise _headless(spec, found)
    if found.broken:
        first, *others = found.broken
        more = f", and {len(others)} more" if others else ""
        raise AlteredError(
            f"{first.why}{more}",
            place=Place(first.file.name, first.line, 1) if first.line else None,
            hint=HINT_SEALED if found.sealed else HINT_CHAINED,
        )
    return ShownLogCheck(found)


def _headless(copy: Path, found: Checked) -> FileError:
    """What was checked of a copy, and what cannot be without its head."""
    head = f"{copy.name}.head"
    return FileError(
        f"`{head}` is not beside the copy: nobody can tell whether lines are missing at its beginning or "
        f"end. Of its {found.line_count:,} lines, numbers {found.first:,} to {found.number:,}, each fits "
        "the one before: none between them was changed, dropped or moved. Without the key nobody knows the "
        "writer",
        hint=f"copy `{head}` from beside the log too, and verify again",
    )


def logs(spec: Path, tell: OnText, role: str = "", follow: bool = False) -> ShownLogs:
    """What the programs of a spec's state said last; with `follow` what they say from now on, until Ctrl-C.

    Raises FileError when there are no logs, ValueRefusedError for a program that wrote none.
    """
    require_extra("live")
    folder = log_path(known_state(spec), "").parent
    roles = sorted(path.stem for path in folder.glob("*.log"))
    if not roles:
        raise FileError(f"there are no logs in `{folder}`", hint="bring it up with `twofold up SPEC`")
    if role and role not in roles:
        raise ValueRefusedError(f"`{role}` has no log", hint=f"write one of {', '.join(roles)}")
    paths = {each: folder / f"{each}.log" for each in ([role] if role else roles)}
    ends = {each: path.stat().st_size for each, path in paths.items()}
    last = {each: without_checks(tail_of(path)) for each, path in paths.items()}
    shown = ShownLogs(
        {each: tuple(said) for each, (said, _) in last.items()},
        {each: count for each, (_, count) in last.items() if count},
    )
    if not follow:
        return shown
    for line in shown.lines:
        tell(line)
    with suppress(KeyboardInterrupt):
        for each, line in following(paths, ends, lambda: True):
            if not CHECK.search(line):
                tell(f"{each}: {line}" if len(paths) > 1 else line)
    return ShownLogs({})


def last_of(path: Path) -> list[str]:
    """The last lines of a log."""
    return tail_of(path)[-LOG_LINES:]


def tail_of(path: Path) -> list[str]:
    """The lines at the end of a log, as many as are looked at."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - TAIL_BYTES))
        return file.read().decode("utf-8", "replace").splitlines()


def without_checks(lines: list[str]) -> tuple[list[str], int]:
    """The last lines but those of checks that went well, and how many of these stand among them."""
    kept = [number for number, line in enumerate(lines) if not CHECK.search(line)][-LOG_LINES:]
    first = kept[0] if len(kept) == LOG_LINES else 0
    return [lines[number] for number in kept], len(lines) - first - len(kept)


def following(
    paths: dict[str, Path], ends: dict[str, int], more: Callable[[], bool]
) -> Iterator[tuple[str, str]]:
    """Whole lines as they come, while `more` do; a log that became shorter is a new one."""
    left = True
    while left and all(path.parent.is_dir() for path in paths.values()):
        left = more()  # before the look, so that what was written last is shown
        for role, path in paths.items():
            with suppress(OSError), path.open("rb") as file:
                start = ends[role] if file.seek(0, 2) >= ends[role] else 0
                file.seek(start)
                whole, broken, _ = file.read().rpartition(b"\n")
                ends[role] = start + len(whole) + len(broken)
                if broken:
                    yield from ((role, line) for line in whole.decode("utf-8", "replace").splitlines())
        time.sleep(FOLLOW_EVERY_S)
