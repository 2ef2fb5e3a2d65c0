"""What many rounds came to, as the page `docs/soak.md`."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median

from tests.soak import training
from tests.soak.clients import BROKEN, COMPLETED, POISON, TOLD, TOO_LONG
from tests.soak.faults import FAULTS
from tests.soak.memory import CONNECTIONS, Memory
from tests.soak.overload import (
    CLASS_SHARE,
    E2E_S,
    PLACES,
    REPLICAS,
    TENANT_SHARE,
    TOKENS_MOST,
    TTFT_S,
    Overload,
)
from tests.soak.releases import Ended
from tests.soak.rounds import Trial
from tests.soak.training import Case

MIB = 1 << 20

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


RELEASES = """\
## Releases

Releases of a very small model that learnt Python's sources, each tried by the gate's small trial for 2
requests/s on engines in one process, timed by the processor time that they take; the margins are those that
so few requests can tell. Twenty of each, with other noise, layers and prompts. Of its stages is what a
release is sent by the end of one at most: the last waits for every test, up to twice what is planned.
Commit {commit}, {date}; {cores} cores{shared}, load average {load:.1f}.

| release | trials | promoted | wrong | decided | worst | sent it | most, of its stages | why |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |"""
LIVE_RELEASES = """\
## Releases on engines

The same releases, tried by the gate of a service that runs: two replicas of `transformers serve` behind the
gateway, the release in the place of one, clients at {rate:g} requests/s; the slower build has four times
the layers here, since half of a token's time is the server's. The rules before the gate, which refuse most
of these, ask for nothing. *Decided* is from the promotion, the start of the release's engine in it. A stage's
size counts answers, and what may be under way when it is decided, 8 requests, is added here.
Commit {commit}, {date}; {cores} cores{shared}, load average {load:.1f}.

| release | trials | promoted | wrong | decided | worst | sent it | most, of its stages | why |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |"""
OVERLOAD = """\
## Overload

A gateway before {replicas} engines of {places} places each that sleep through every token, so that they need
little of the machine; answers of 1 to {most} tokens, arrivals are Poisson and wait for nobody; the class
promises a first token in {ttft_s:.1f} s and the last in {e2e_s:.1f} s. It may ask for {of_class:.0%} of what
the engines can do, a tenant among several for {of_tenant:.0%}. {seconds:.0f} s each.
Commit {commit}, {date}; {cores} cores{shared}, load average {load:.1f}.

| load | offered /s | accepted | refused | goodput /s | TTFT p95 | E2E p95 |
| --- | --- | --- | --- | --- | --- | --- |
"""
MEMORY = """\
## Memory

{requests:,} streamed requests by {connections} connections with all policies on: each prompt, session and
id is new, of 1,000 tenants. The gateway's process has {first_mib:.1f} MiB after a quarter of them and
{last_mib:.1f} MiB after all: {grown:+.0f} bytes a request, at most {most_mib:.1f} MiB at any look.
Commit {commit}, {date}; {cores} cores{shared}, load average {load:.1f}.
"""


TRAINING = """\
## Training

Two ranks train a small model, a run each; it *held* when every loss is that of a run to which nothing
happened, to the last bit, and so are the weights where they were published.
Commit {commit}, {date}; {cores} cores{shared}, load average {load:.1f}.

| what was done to it | seeds | held | longest |
| --- | --- | --- | --- |
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


def overload_section(found: Overload, seconds: float, setting: Setting) -> str:
    """The section's text: a row per load, and a line per goal."""
    shared = ", shared with other work" if setting.shared else ""
    told = {
        "replicas": REPLICAS,
        "places": PLACES,
        "most": TOKENS_MOST,
        "ttft_s": TTFT_S,
        "e2e_s": E2E_S,
        "of_class": CLASS_SHARE,
        "of_tenant": TENANT_SHARE,
    }
    head = OVERLOAD.format(**{**asdict(setting), **told, "shared": shared, "seconds": seconds})
    loads = {f"{ratio:g} of what the engines can do": each for ratio, each in found.by_ratio.items()}
    loads |= {"a quiet tenant alone": found.alone, "the same beside a noisy one": found.beside}
    loads["the noisy one"] = found.noisy
    rows = [
        f"| {name} | {each.offered_per_s:.1f} | {each.accepted_count} | {each.refused_count}"
        f" | {each.goodput_per_s:.1f} | {each.ttft_s_p95:.2f} s | {each.e2e_s_p95:.2f} s |"
        for name, each in loads.items()
    ]
    return head + "\n".join([*rows, "", *(f"- {each}." for each in found.verdicts())]) + "\n"


def memory_section(memory: Memory, setting: Setting) -> str:
    """The section's text."""
    shared = ", shared with other work" if setting.shared else ""
    quarter = len(memory.rss_bytes) // 4
    told = {
        "requests": memory.requests,
        "connections": CONNECTIONS,
        "first_mib": memory.rss_bytes[quarter] / MIB,
        "last_mib": memory.rss_bytes[-1] / MIB,
        "most_mib": max(memory.rss_bytes) / MIB,
        "grown": memory.grown_bytes / (memory.requests * (1 - (quarter + 1) / len(memory.rss_bytes))),
    }
    return MEMORY.format(**{**asdict(setting), **told, "shared": shared})


def training_section(cases: Sequence[Case], setting: Setting) -> str:
    """The section's text, a row per fault."""
    shared = ", shared with other work" if setting.shared else ""
    wrong = [f"- {each.fault}, seed {each.seed}: {each.wrong}" for each in cases if each.wrong]
    head = TRAINING.format(**{**asdict(setting), "shared": shared})
    return head + "\n".join([*training.rows_of(cases), "", *(wrong or ["All held."])]) + "\n"


def releases_section(ended: Mapping[str, Sequence[Ended]], good: Sequence[str], setting: Setting) -> str:
    """The section's text: how often the gate was wrong about each kind of release."""
    return _releases_text(RELEASES, ended, good, setting)


def live_releases_section(
    ended: Mapping[str, Sequence[Ended]], good: Sequence[str], rate_per_s: float, setting: Setting
) -> str:
    """The same of engines behind a gateway."""
    return _releases_text(LIVE_RELEASES, ended, good, setting, rate=rate_per_s)


def _releases_text(
    head: str, ended: Mapping[str, Sequence[Ended]], good: Sequence[str], setting: Setting, **told: float
) -> str:
    shared = ", shared with other work" if setting.shared else ""
    lines = [head.format(**{**asdict(setting), **told, "shared": shared})]
    for kind, each in ended.items():
        promoted = sum(one.promoted for one in each)
        wrong = len(each) - promoted if kind in good else promoted
        share = median(one.to_release / max(one.requests, 1) for one in each)
        most = max(each, key=lambda one: one.to_release / max(one.stage_requests, 1))
        reasons = Counter(one.reason for one in each if not one.promoted)
        why = ", ".join(f"{reason} {count}" for reason, count in reasons.most_common())
        took = sorted(one.seconds for one in each)
        name = "false alarms" if kind in good else "misses"
        lines.append(
            f"| {kind} | {len(each)} | {promoted} | {wrong} {name} | {median(took):.0f} s | {took[-1]:.0f} s"
            f" | {share:.0%} | {most.to_release} of {most.stage_requests} | {why} |"
        )
    return "\n".join(lines) + "\n"


def with_section(page: str, section: str) -> str:
    """A page with this section in the place of the one of its title, or at the end."""
    title = section.partition("\n")[0]
    parts = [part for part in re.split(r"(?m)^(?=## )", page) if part.partition("\n")[0] != title]
    return "\n".join(part.strip("\n") + "\n" for part in (*parts, section) if part.strip())


def kept_sections(page: str) -> list[str]:
    """What other parts than the faults wrote into a page."""
    own = ("## Overload", "## Memory", "## Training", "## Releases")
    return [part for part in re.split(r"(?m)^(?=## )", page) if part.startswith(own)]
