"""What a run writes down while it trains, and the record that is made of it.

One JSON object a line, appended in one write each, so that a kill -9 tears at most the last line:
`steps.jsonl` has a line per step of rank 0, `steps-rank-N.jsonl` of each other rank, `events.jsonl` what
happened beside the steps. What a full disk refuses is kept in memory until there is room. The record is
computed from these lines alone: whoever reads them later gets the same numbers.
"""

import errno
import fcntl
import json
import os
import statistics
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from twofold.contracts.results import loop
from twofold.live.boots import this_boot
from twofold.live.training.data_staging import pins_of

WARM_UP_STEPS = 3  # of each attempt: caches fill, allocators grow
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
FLUSH_WAIT_S = 0.2
KEPT_LINES = 100_000  # of each file, that a full disk refused: the newest ones
_waiting: dict[Path, deque[bytes]] = {}  # of this process
_one_writer = threading.Lock()  # checkpoints are told of by a thread of their own


@dataclass(frozen=True, slots=True)
class StepLine:
    """One step of one rank. The parts are wall times; with the rest they sum to `step_s`."""

    launch: int  # how often the run was started, from 1
    attempt: int  # how often its launcher restarted the workers, from 0
    step: int  # from 1
    loss: str  # mean over all ranks, a hexadecimal float: equal texts are equal bits
    at_s: float  # of the clock on the wall, when the step was done
    step_s: float  # since the step before was done
    data_s: float
    forward_s: float
    backward_s: float
    communication_s: float
    optimiser_s: float
    checkpoint_s: float
    peak_memory_bytes: int  # of this process so far
    off_core_s: float = 0.0  # of compute: its thread waited for a core that something else had
    steady_s: float | None = None  # when it was done, of the monotonic clock that this boot's processes share
    fragmented_fraction: float = 0.0  # of the memory that it holds, free inside it; 0 where nobody says

    @property
    def other_s(self) -> float:
        """What no part accounts for: logging, Python between the parts."""
        named = self.data_s + self.forward_s + self.backward_s + self.communication_s
        return self.step_s - named - self.optimiser_s - self.checkpoint_s


NAMES = {field.name for field in fields(StepLine)}
NEEDED = {field.name for field in fields(StepLine) if field.default is MISSING}


def steps_path(run: Path, rank: int) -> Path:
    """Where a rank writes its steps; rank 0's file is the run's account."""
    return run / ("steps.jsonl" if rank == 0 else f"steps-rank-{rank}.jsonl")


def mend(path: Path) -> None:
    """End a last line that a kill tore, so that it does not swallow the next one."""
    if path.exists() and not path.read_bytes().endswith(b"\n"):
        _append(path, "\n")


def append_step(run: Path, rank: int, line: StepLine) -> None:
    """Write down one step."""
    _append(steps_path(run, rank), json.dumps(asdict(line)) + "\n")


def append_event(run: Path, event: str, **facts: int | float | str) -> None:
    """Write down what happened; the time is added, by the wall's clock and by this boot's monotonic one."""
    at = {"at_s": time.time(), "steady_s": time.monotonic(), "boot": this_boot()}
    _append(run / "events.jsonl", json.dumps({"event": event, **at, **facts}) + "\n")


def flush_lines(until_s: float) -> bool:
    """Try to write what waits for room, until that moment of the monotonic clock; whether all is written."""
    while True:
        with _one_writer:
            _write_waiting(None)
            if not _waiting:
                return True
        if time.monotonic() >= until_s:
            return False
        time.sleep(FLUSH_WAIT_S)


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Every whole line of a file; torn ones are left out. A file that is not there has none."""
    return objects_in(path.read_bytes()) if path.exists() else []


def objects_in(data: bytes) -> list[dict[str, Any]]:
    """The objects that lines hold, one each; what is torn by a kill, broken or no object is left out."""
    found = []
    for line in data.splitlines():
        with suppress(ValueError, RecursionError):
            found.append(json.loads(line))
    return [each for each in found if isinstance(each, dict)]


def read_events(run: Path, event: str = "") -> list[dict[str, Any]]:
    """The events of a run, or those of one name, in the order in which they happened."""
    return [data for data in read_lines(run / "events.jsonl") if event in ("", data.get("event"))]


def read_steps(run: Path, rank: int = 0) -> list[StepLine]:
    """The steps of one rank in the order in which they were done, repeated ones every time."""
    return [line for data in read_lines(steps_path(run, rank)) if (line := step_line(data))]


def step_line(data: Mapping[str, Any]) -> StepLine | None:
    """A line of a file of steps; None for one that is none."""
    if data.keys() <= NAMES and data.keys() >= NEEDED:
        return StepLine(**data)
    return None


def summarise(run: Path, rank_count: int, tokens_per_step: int) -> loop.TrainingMeasured:
    """The record of a finished run, from its lines alone."""
    by_rank = [read_steps(run, rank) for rank in range(rank_count)]
    lines, events = by_rank[0], read_events(run)
    latest = {line.step: line for line in lines}
    p10_s, p50_s, p90_s = np.quantile([line.step_s for line in _after_warm_up(lines)], (0.1, 0.5, 0.9))
    saves = [event for event in events if event["event"] == "checkpoint"]
    built = [event for event in events if event["event"] == "built"]
    return loop.TrainingMeasured(
        rank_count=rank_count,
        parameter_count=built[-1]["parameter_count"],
        steps=len(latest),
        tokens_per_step=tokens_per_step,
        step_s_p10=float(p10_s),
        step_s_p50=float(p50_s),
        step_s_p90=float(p90_s),
        parts=step_parts(by_rank),
        first_loss=float.fromhex(latest[min(latest)].loss),
        last_loss=float.fromhex(latest[max(latest)].loss),
        peak_memory_bytes=max(line.peak_memory_bytes for rank in by_rank for line in rank),
        # A kill between the only checkpoint and its event leaves a run without one.
        checkpoint_bytes=max((int(event["size_bytes"]) for event in saves), default=0),
        checkpoint_count=len(saves),
        checkpoint_write_s=statistics.median([float(event["write_s"]) for event in saves] or [0.0]),
        recovery=recovery_of(lines, events),
        wall_s=active_s(lines, events),
        data_fraction=max(_share(rank, "data_s") for rank in by_rank),
        off_core_fraction=max(_off_core(rank) for rank in by_rank),
        data=data_read(run, events),
    )


def _share(lines: Sequence[StepLine], part: str) -> float:
    """Of all time after warm-up: a stall of one step in ten counts, which a typical step does not show."""
    kept = _after_warm_up(lines)
    return float(sum(getattr(line, part) for line in kept) / sum(line.step_s for line in kept))


def _off_core(lines: Sequence[StepLine]) -> float:
    """Of the time in which a rank computed."""
    kept = _after_warm_up(lines)
    computed_s = sum(line.forward_s + line.backward_s + line.optimiser_s for line in kept)
    return sum(line.off_core_s for line in kept) / computed_s if computed_s else 0.0


def data_read(run: Path, events: Iterable[Mapping[str, Any]]) -> loop.DataRead | None:
    """What was read, and how fast it came; None for a run of before there was such a record."""
    try:
        said = json.loads((run / "hf" / "lineage.json").read_text("utf-8"))["data"]
    except (OSError, ValueError, KeyError):
        return None
    pins = [pin for pin in pins_of(run) if pin.sha256 in said["sha256"]]  # what was staged ahead was not read
    staged = [event for event in events if event["event"] == "staged"]  # beside the training, by this run
    return loop.DataRead(
        digest=said["digest"],
        files=len(pins),
        size_bytes=sum(pin.size_bytes for pin in pins),
        tokens=sum(pin.token_count for pin in pins),
        documents=sum(pin.document_count for pin in pins),
        staged_bytes=sum(event["size_bytes"] for event in staged),
        fetch_s=sum(event["fetch_s"] for event in staged),
        tokenise_s=sum(event["tokenise_s"] for event in staged),
    )


def step_parts(by_rank: Sequence[Sequence[StepLine]]) -> loop.StepParts:
    """Where the time of a typical step goes on the rank that the others wait for.

    All ranks end a step together, so the slowest one is the one that waits least in collectives. Its parts
    are means over the middle half of its steps by length, without the checkpoints, scaled to the median step
    without its own; what checkpoints blocked is a mean beside them: a few long ones may exceed the median.
    """
    kept = [_after_warm_up(lines) for lines in by_rank]
    slowest = min(kept, key=lambda lines: statistics.median(line.communication_s for line in lines))
    checkpoint_s = statistics.fmean(line.checkpoint_s for line in slowest)
    ordered = sorted(slowest, key=lambda line: line.step_s - line.checkpoint_s)
    middle = ordered[len(ordered) // 4 : len(ordered) - len(ordered) // 4]
    whole_s = statistics.fmean(line.step_s - line.checkpoint_s for line in middle)
    # Steps of rank 0 are the run's steps: its median is the one that the parts must sum to.
    factor = statistics.median(line.step_s - line.checkpoint_s for line in kept[0]) / whole_s

    def part(name: str) -> float:
        return factor * statistics.fmean(getattr(line, name) for line in middle)

    names = ("data_s", "forward_s", "backward_s", "communication_s", "optimiser_s", "other_s")
    return loop.StepParts(checkpoint_s=checkpoint_s, **{name: part(name) for name in names})


def slowest_collective(run: Path) -> str:
    """In words, which collective the ranks waited in longest, and which rank they waited for; "" for none.

    The rank that the others wait for is the one that waits least itself.
    """
    by_name: dict[str, float] = defaultdict(float)
    by_rank: dict[int, float] = defaultdict(float)
    for event in read_events(run, "collective"):
        by_name[event["name"]] += event["waited_s"]
        by_rank[event["rank"]] += event["waited_s"]
    if len(by_rank) < 2:
        return ""
    name, waited_s = max(by_name.items(), key=lambda each: each[1])
    share = waited_s / (sum(by_name.values()) or 1.0)
    return f"{name} ({share:.0%} of the waiting), for rank {min(by_rank, key=by_rank.__getitem__)}"


def recovery_of(lines: Sequence[StepLine], events: Iterable[Mapping[str, Any]]) -> loop.Recovery | None:
    """What the kill that we ordered cost; None when there was none, or when we died before seeing it heal."""
    kills = [event for event in events if event["event"] == "killed"]
    if not kills:
        return None
    kill = kills[0]
    # In the order of the lines, not of the clock, which somebody may set meanwhile.
    after = [line for line in lines if line.launch == kill["launch"] and line.attempt > kill["attempt"]]
    if not after:
        return None
    before = {line.step for line in lines[: lines.index(after[0])]}
    return loop.Recovery(
        killed_rank=kill["rank"],
        killed_after_step=kill["after_step"],
        resumed_from_step=after[0].step - 1,
        repeated_steps=len(before & {line.step for line in after}),
        equal_losses=not unequal_steps(lines),
        kill_to_step_s=between(moment(kill, "sent_"), (after[0].at_s, after[0].steady_s)),
    )


def is_futile(started: Collection[int], stepped: Collection[int]) -> bool:
    """Whether two attempts in a row of a launch died before their first step: a third would too."""
    latest = max(started, default=0)
    return latest >= 2 and not set(stepped) & {latest - 1, latest - 2, latest}


def unequal_steps(lines: Iterable[StepLine]) -> list[int]:
    """Steps that were done more than once and whose losses differ in any bit."""
    losses = {(line.step, line.loss) for line in lines}
    return sorted(step for step, count in Counter(step for step, _ in losses).items() if count > 1)


def active_s(lines: Iterable[StepLine], events: Iterable[Mapping[str, Any]]) -> float:
    """Seconds of work: from each launch to the last sign of life before the next one, summed.

    A run that was cut in the evening and taken up in the morning did not take a night, and one in which the
    clock on the wall was set did not take a year. Events of other hosts than the launch's do not count.
    """
    return sum(worked_s for _, worked_s in launches_of(lines, events))


def launches_of(
    lines: Iterable[StepLine], events: Iterable[Mapping[str, Any]]
) -> list[tuple[Mapping[str, Any], float]]:
    """Each launch, and the seconds from it to its last sign of life."""
    launches: list[Mapping[str, Any]] = []
    worked_s: list[float] = []
    for event in events:
        if event["event"] == "launched":
            launches.append(event)
            worked_s.append(0.0)
        elif launches and event.get("boot") == launches[-1].get("boot"):
            worked_s[-1] = max(worked_s[-1], between(moment(launches[-1]), moment(event)))
    at = {launch.get("launch"): (number, moment(launch)) for number, launch in enumerate(launches)}
    for line in lines:
        if line.launch in at:
            number, began = at[line.launch]
            worked_s[number] = max(worked_s[number], between(began, (line.at_s, line.steady_s)))
    return list(zip(launches, worked_s, strict=True))


Moment = tuple[float, float | None]  # by the clock on the wall, and by the monotonic one


def moment(event: Mapping[str, Any], name: str = "") -> Moment:
    """When it was; older versions did not write the monotonic clock."""
    return float(event[f"{name}at_s"]), event.get(f"{name}steady_s")


def between(start: Moment, end: Moment) -> float:
    """Seconds from one to the other, by the monotonic clock where both know it."""
    if start[1] is None or end[1] is None:
        return end[0] - start[0]
    return end[1] - start[1]


def _append(path: Path, text: str) -> None:
    """In one write: a kill leaves a line whole, or torn and ignored. What has no room waits, in its order.

    Raises OSError for a disk that refuses for another reason.
    """
    with _one_writer:
        _waiting.setdefault(path, deque(maxlen=KEPT_LINES)).append(text.encode())
        _write_waiting(path)


def _write_waiting(asked: Path | None) -> None:
    """What waits, of every file; raises OSError where the file that is asked for is refused for good."""
    for file, lines in list(_waiting.items()):
        try:
            _write(file, lines)
        except OSError as error:
            if file == asked and error.errno not in NO_ROOM:
                del _waiting[file]
                raise
        if not lines:
            del _waiting[file]


def _write(path: Path, lines: deque[bytes]) -> None:
    """Lines, as long as there is room; those that are written are taken out.

    Under a lock, for other ranks append to the same file: of a line that fits in part, nothing stays.
    """
    if not lines:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        while lines:
            before_bytes = os.fstat(descriptor).st_size
            if os.write(descriptor, lines[0]) < len(lines[0]):
                os.ftruncate(descriptor, before_bytes)
                return
            lines.popleft()
    finally:
        os.close(descriptor)


def _after_warm_up(lines: Sequence[StepLine]) -> list[StepLine]:
    """The steps that count for quantiles; all of them when there are only warm-up steps."""
    done: Counter[tuple[int, int]] = Counter()
    kept = []
    for line in lines:
        done[line.launch, line.attempt] += 1
        if done[line.launch, line.attempt] > WARM_UP_STEPS:
            kept.append(line)
    return kept or list(lines)
