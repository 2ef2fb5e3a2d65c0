"""Runs that are trained again and again: `repeats: every 8 weeks` of a spec, in a queue of jobs.

Below a queue's `campaigns`, a folder each: `campaign.json`, and what the first job's folder held. Each turn
is a job of its own, with a folder of its own, that reads its data anew. Turns are counted on the wall's
clock, from when the first one was submitted. A turn that comes while the one before still runs is left out;
of turns that passed while nobody drove the queue the last one is taken, once.
"""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from twofold.core.data import DataError, from_data, to_json
from twofold.live.jobs.orders import (
    JobOrder,
    job_folder,
    jobs_folder,
    new_job_id,
    order_path,
    submit,
    submitting,
)
from twofold.live.processes import make_private
from twofold.live.training.artefact import write_whole

FILE = "campaign.json"


@dataclass(frozen=True, slots=True)
class Campaign:
    """One run that is repeated. Turn 0 is the job that was submitted."""

    name: str
    every_s: float
    first_s: float  # Unix time of turn 0
    order: JobOrder  # of turn 0
    latest: str  # the job of the last turn that was taken
    turn: int = 0  # the last one that was taken or left out
    left_out: int = 0

    @property
    def next_s(self) -> float:
        """Unix time of the next turn."""
        return self.first_s + (self.turn + 1) * self.every_s

    @property
    def run_count(self) -> int:
        """Turns that were taken."""
        return self.turn + 1 - self.left_out


def begin(state: Path, name: str, every_s: float, now_s: float, order: JobOrder) -> Campaign:
    """From now on a job that was just submitted is repeated, instead of what had this name before."""
    folder = _folder(state, name)
    shutil.rmtree(folder, ignore_errors=True)
    make_private(folder)
    for path in job_folder(state, order.job_id).glob("*"):
        if path.is_file():
            shutil.copyfile(path, folder / path.name)
    campaign = Campaign(name, every_s, now_s, order, order.job_id)
    _write(state, campaign)
    return campaign


def end(state: Path, name: str) -> None:
    """It is not repeated any more; a job of it that runs goes on."""
    with submitting(state):
        shutil.rmtree(_folder(state, name))


def campaigns_of(state: Path) -> list[Campaign]:
    """All of a queue, by name; one that cannot be read is none."""
    found = (_read(path) for path in sorted((jobs_folder(state) / "campaigns").glob(f"*/{FILE}")))
    return [each for each in found if each is not None]


def take_turns(state: Path, now_s: float, goes_on: Callable[[str], bool]) -> None:
    """Submit what is due. Safe to be killed in: a job that was promised and is not there is submitted."""
    for seen in campaigns_of(state):
        if turned(seen, now_s, goes_on=True) == seen and order_path(state, seen.latest).exists():
            continue
        with submitting(state):
            campaign = _read(_folder(state, seen.name) / FILE)  # its owner may have ended it, or begun anew
            if campaign is None:
                continue
            after = turned(campaign, now_s, goes_on=goes_on(campaign.latest))
            if after.run_count != campaign.run_count:
                after = replace(after, latest=new_job_id(state, campaign.name))
            _write(state, after)
            _submit(state, after)


def turned(campaign: Campaign, now_s: float, *, goes_on: bool) -> Campaign:
    """The campaign at that time, its latest job going on or not: `latest` is told by who submits."""
    turn = int((now_s - campaign.first_s) // campaign.every_s)
    passed = turn - campaign.turn
    if passed <= 0:
        return campaign
    left_out = passed if goes_on else passed - 1
    return replace(campaign, turn=turn, left_out=campaign.left_out + left_out)


def _submit(state: Path, campaign: Campaign) -> None:
    """The job of its latest turn, unless that is there."""
    if order_path(state, campaign.latest).exists():
        return
    before = str(job_folder(state, campaign.order.job_id).resolve())
    folder = job_folder(state, campaign.latest)
    make_private(folder)
    for path in _folder(state, campaign.name).glob("*"):
        if path.name != FILE:
            shutil.copyfile(path, folder / path.name)

    def moved(text: str) -> str:
        is_there = text == before or text.startswith(f"{before}/")
        return f"{folder.resolve()}{text[len(before) :]}" if is_there else text

    order = campaign.order
    again = replace(
        order,
        job_id=campaign.latest,
        command=tuple(map(moved, order.command)),
        folder=moved(order.folder),
        working_folder=moved(order.working_folder),
    )
    submit(state, again)


def _folder(state: Path, name: str) -> Path:
    return jobs_folder(state) / "campaigns" / name


def _read(path: Path) -> Campaign | None:
    try:
        return from_data(Campaign, json.loads(path.read_text("utf-8")))
    except (OSError, ValueError, RecursionError, DataError):
        return None


def _write(state: Path, campaign: Campaign) -> None:
    write_whole(_folder(state, campaign.name) / FILE, to_json(campaign))
