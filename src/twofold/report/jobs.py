"""The screen of a queue of jobs: a row each."""

import time
from collections.abc import Sequence
from textwrap import TextWrapper

from twofold.core.display import format_seconds
from twofold.live.jobs import campaigns
from twofold.live.jobs.listing import JobStatus
from twofold.live.jobs.trouble import Trouble
from twofold.report.lines import listed


def jobs_lines(jobs: Sequence[JobStatus], controlled: bool) -> list[str]:
    """The table, and what is wrong with whoever drives it."""
    if not jobs:
        return ["no jobs were submitted"]
    lines = listed(
        jobs,
        ("job", lambda job: job.job_id),
        ("team", lambda job: job.team),
        (">priority", lambda job: str(job.priority)),
        ("state", lambda job: f"{job.state} ({job.why})" if job.why and job.state in SAYS_WHY else job.state),
        (">ranks", lambda job: str(job.ranks)),
        (">step", lambda job: "-" if job.step is None else str(job.step)),
        (">restarts", lambda job: str(job.restarts)),
        ("since", lambda job: _clock(job.since_s)),
    )
    alone = "  nobody drives the queue: `twofold jobs submit` starts a driver again"
    return lines if controlled else [*lines, alone]


def campaign_lines(told: Sequence[campaigns.Campaign]) -> list[str]:
    """A line for each: how often, how many there were, when the next one is."""
    lines = []
    for each in told:
        runs = f"{each.run_count} run{'s' * (each.run_count != 1)}"
        left_out = f", {each.left_out} left out" if each.left_out else ""
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(each.next_s))
        lines.append(
            f"{each.name} is repeated every {format_seconds(each.every_s)}: {runs}{left_out}, next {when}"
        )
    return [*lines, *(["`twofold jobs cancel SPEC NAME` ends that"] if lines else [])]


def trouble_lines(trouble: Trouble | None) -> list[str]:
    """What the queue stands still for, and what to do; nothing where it goes on."""
    if trouble is None:
        return []
    tried = f", tried {trouble.tries} times" if trouble.tries > 1 else ""
    said = f"the queue stands still{tried}; jobs that run go on: {trouble.what}"
    wrapper = TextWrapper(100, "  ", "    ", break_long_words=False, break_on_hyphens=False)
    return [*wrapper.wrap(said), *wrapper.wrap(trouble.hint)]


SAYS_WHY = ("failed", "refused", "queued")


def _clock(at_s: float) -> str:
    """On this machine's clock; with the day when that was another one."""
    at, today = time.localtime(at_s), time.localtime()
    return time.strftime("%H:%M:%S" if at[:3] == today[:3] else "%m-%d %H:%M:%S", at)
