"""What many rounds came to, as the page `docs/soak.md`."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median

from tests.soak.clients import BROKEN, COMPLETED, POISON, TOLD, TOO_LONG
from tests.soak.faults import FAULTS
from tests.soak.rounds import Trial

HEAD = """\
# Faults at random

What `make soak` did to a service under load, and how the service took it; written by it. Each trial brings
up a service of two engines, does each fault once in an order drawn by its seed, while {clients} clients
ask and one compares `/health` with a completion, and takes it down. Engines are stand-ins with a token in
{pace_ms:.0f} ms that die of what their cache does not hold; gateway, controller and watchdog are what
`up` starts.

Commit {commit}, {date}, seeds {seeds}; {cores} cores{shared}, load average {load:.1f} at the end.

## Recovery

*Answers* is from the fault to the end of the first request that was asked after it; *all back* until another
process has each place that was hit and every replica is sent requests. A second death within a minute waits
a second before the next start, a third two: that is in here.

| fault | rounds | answers, median | worst | all back, median | worst | did not hold |
| --- | --- | --- | --- | --- | --- | --- |
"""
BOOKS = """\

## Books

| of all clients | |
| --- | --- |
| HTTP requests sent | {sent:,} |
| completed, every token once and in its order | {completed:,} |
| told by status or event that they may ask again | {told:,} |
| connection broken, which may be asked again | {broken:,} |
| refused as too long, on purpose | {too_long:,} |
| refused as a prompt that engines die of, on purpose | {poison:,} |
| never answered in {patience_s:.0f} s of repeats | {unanswered:,} |

Held in each trial, or named below: a request completed or ended with an error that it may retry; each has its
line in the log of requests (but for the last second before a gateway is killed), which says what its client
says; the gate's log replays, and its counts are the clients' own (within connections that broke); `/health`
and a completion contradict each other for at most {agree_s:.0f} s (worst: {disagreed_s:.1f} s); no process
is left after `down`.

"""


@dataclass(frozen=True, slots=True)
class Setting:
    """Where and how it was run."""

    commit: str
    date: str
    seeds: str
    cores: int
    shared: bool
    load: float
    clients: int
    pace_ms: float
    patience_s: float
    agree_s: float


def page_of(trials: Sequence[Trial], setting: Setting) -> str:
    """The page's text."""
    asked = [each for trial in trials for each in trial.books.asked]
    counts = Counter(each.outcome for each in asked)
    shared = ", shared with other work" if setting.shared else ""
    head = HEAD.format(**{**asdict(setting), "shared": shared})
    books = BOOKS.format(
        sent=len(asked),
        completed=counts[COMPLETED],
        told=counts[TOLD],
        broken=counts[BROKEN],
        too_long=counts[TOO_LONG],
        poison=counts[POISON],
        unanswered=sum(len(trial.books.unanswered) for trial in trials),
        patience_s=setting.patience_s,
        agree_s=setting.agree_s,
        disagreed_s=max((trial.disagreed_s for trial in trials), default=0.0),
    )
    wrong = [each for trial in trials for each in trial.wrong]
    wrong += [each for trial in trials for made in trial.rounds for each in made.wrong]
    found = "\n".join(f"- {each}" for each in wrong) or "All held."
    return head + "\n".join(rows_of(trials)) + "\n" + books + found + "\n"


def rows_of(trials: Sequence[Trial]) -> list[str]:
    """A row per fault."""
    rows = []
    for fault in FAULTS:
        rounds = [made for trial in trials for made in trial.rounds if made.fault == fault]
        if rounds:
            answers = [made.answers_s for made in rounds if made.answers_s is not None]
            back = [made.capacity_s for made in rounds if made.capacity_s is not None]
            wrong = sum(bool(made.wrong) for made in rounds)
            rows.append(f"| {fault} | {len(rounds)} | {_span(answers)} | {_span(back)} | {wrong} |")
    return rows


def _span(seconds: list[float]) -> str:
    return f"{median(seconds):.2f} s | {max(seconds):.2f} s" if seconds else "never | never"
