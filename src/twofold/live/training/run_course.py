"""A run over time, made of the lines that it wrote: when it trained and saved, and what befell it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from twofold.contracts.results import loop
from twofold.live.training.training_record import (
    Moment,
    StepLine,
    between,
    launches_of,
    moment,
    read_events,
    read_steps,
    summarise,
)

STRETCHES_MOST = 300  # checkpoints that are kept, and as many others

Event = Mapping[str, Any]


def measured_run(run: Path, rank_count: int, tokens_per_step: int) -> loop.TrainingMeasured:
    """The record of a finished run with its course, from its lines alone."""
    course = course_of(read_steps(run), read_events(run))
    return replace(summarise(run, rank_count, tokens_per_step), course=course)


def course_of(lines: Sequence[StepLine], events: Sequence[Event]) -> loop.RunCourse:
    """What happened when, launch after launch: the time between two of them is left out.

    Events of other hosts than a launch's have another clock and are passed over, as in `active_s`.
    """
    found: list[loop.Stretch] = []
    began_s = 0.0
    for number, (launch, worked_s) in enumerate(launches_of(lines, events)):
        own = [each for each in lines if each.launch == launch.get("launch")]
        one = _Launch(launch, began_s, worked_s, own, _events_of(events, number))
        if number:
            found.append(loop.Stretch("launched again", began_s, began_s, one.last_before(lines)))
        found += [*one.attempts(), *one.saves()]
        began_s += worked_s
    saved = [each for each in found if each.what == "checkpoint"]
    others = [each for each in found if each.what != "checkpoint"]
    every = -(-len(saved) // STRETCHES_MOST) or 1
    kept = sorted([*saved[every - 1 :: every], *others[:STRETCHES_MOST]], key=lambda each: each.from_s)
    return loop.RunCourse(tuple(kept), every, max(0, len(others) - STRETCHES_MOST))


def _events_of(events: Sequence[Event], number: int) -> list[Event]:
    """What was written down between a launch, counted from 0, and the next one, on its host."""
    at = [index for index, event in enumerate(events) if event["event"] == "launched"]
    end = at[number + 1] if number + 1 < len(at) else len(events)
    boot = events[at[number]].get("boot")
    return [event for event in events[at[number] + 1 : end] if event.get("boot") == boot]


@dataclass(frozen=True, slots=True)
class _Launch:
    """One launch, and where its time stands in the run's."""

    launch: Event
    began_s: float  # seconds of work before it
    worked_s: float
    lines: Sequence[StepLine]  # rank 0's, in their order
    events: Sequence[Event]

    def at(self, when: Moment) -> float:
        """A moment of it as seconds of the run's work."""
        return self.began_s + min(max(0.0, between(moment(self.launch), when)), self.worked_s)

    def done_at(self, line: StepLine) -> float:
        """When a step was done."""
        return self.at((line.at_s, line.steady_s))

    def last_before(self, lines: Sequence[StepLine]) -> int | None:
        """The step that had been done when it began."""
        return max((each.step for each in lines if each.launch < self.launch["launch"]), default=None)

    def attempts(self) -> Iterator[loop.Stretch]:
        """Starting and training of each attempt, and how each but the last one ended."""
        workers = [each for each in self.events if each["event"] == "worker"]
        numbers = sorted({line.attempt for line in self.lines} | {each["attempt"] for each in workers})
        end_s = self.began_s + self.worked_s
        for attempt in reversed(numbers):
            own = [line for line in self.lines if line.attempt == attempt]
            started = [self.at(moment(each)) for each in workers if each["attempt"] == attempt]
            first_s = self.done_at(own[0]) - own[0].step_s if own else end_s  # when its first step began
            from_s = self.began_s if attempt == numbers[0] else min([*started, first_s])
            first_s = max(from_s, first_s)
            yield loop.Stretch("starting", from_s, first_s, own[0].step - 1 if own else None)
            if own:
                yield loop.Stretch("training", first_s, self.done_at(own[-1]), own[-1].step)
            if attempt != numbers[-1]:
                yield self._ended(attempt, self.done_at(own[-1]) if own else from_s, own)
            end_s = from_s

    def _ended(self, attempt: int, last_s: float, own: Sequence[StepLine]) -> loop.Stretch:
        """A failure, from the kill or the last sign of life to the first step that is done after it."""
        after = [line for line in self.lines if line.attempt > attempt]
        until_s = self.done_at(after[0]) if after else self.began_s + self.worked_s
        step = own[-1].step if own else None
        for kill in self.events:
            if kill["event"] == "killed" and kill.get("attempt") == attempt:
                return loop.Stretch(
                    "killed", self.at(moment(kill, "sent_")), until_s, step, f"rank {kill['rank']}"
                )
        return loop.Stretch("died", last_s, until_s, step)

    def saves(self) -> Iterator[loop.Stretch]:
        """Checkpoints as long as they were written, those that could not be, and a stop on being told."""
        for event in self.events:
            at_s, step = self.at(moment(event)), event.get("step")
            if event["event"] == "checkpoint":
                from_s = max(self.began_s, at_s - float(event["write_s"]))
                yield loop.Stretch("checkpoint", from_s, at_s, step)
            elif event["event"] == "checkpoint-failed":
                yield loop.Stretch("not saved", at_s, at_s, step, event.get("reason", ""))
            elif event["event"] == "stopped":
                yield loop.Stretch("stopped", at_s, at_s, step)
