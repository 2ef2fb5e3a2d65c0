"""The four scenarios of a proof: who asks when and for how much, and what is done to the service."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from math import inf

import numpy as np

from twofold.rehearse import as_measured
from twofold.twin.serving import fault_types, fleet_types
from twofold.twin.serving.traffic import Surge, TrafficModel, generate

STEADY, BURST, KILLED, RELEASE = NAMES = ("steady", "burst", "killed", "release")
STEADY_FRACTION = 0.4  # of the knee: what is left carries a burst, and the traffic of a replica that died
BURST_RATIO = 2.0
KILL_AT_FRACTION = 0.25  # of the run
RELEASE_AT_S = 2.0
RELEASE_RATIO = 1.25  # requests of the release's run over others': a trial asks for many …
START_RATIO = 2.0  # … and no request tells of it in the time of so many cold starts
BACK_RATIO, BACK_S = 1.5, 4.0  # of a cold start, and seconds for its turn, that requests go on after a death
SENT_RATIO = 1.05  # requests sent over those that are to be finished
FEW = 400  # requests; with fewer, only what fewer can tell
TWIN_VICTIM = "r0"


@dataclass(frozen=True, slots=True)
class Traffic:
    """How requests come, and how far answers go."""

    model: TrafficModel  # of the class, lengths and all; its rate is of no matter
    rate_per_s: float  # of the steady scenario
    answers: tuple[float, ...]  # answers' lengths over what was asked for, as the calibration saw them
    release_factor: float  # of the release's steps
    there: as_measured.Deployed


@dataclass(frozen=True, slots=True)
class Scene:
    """One run of one scenario."""

    scenario: str
    seed: int
    arrivals: tuple[fleet_types.Arrival, ...]
    fault: fault_types.Fault | None

    @property
    def faults(self) -> tuple[fault_types.Fault, ...]:
        """As a world has them."""
        return () if self.fault is None else (self.fault,)


def scenarios_of(finished_count: int) -> tuple[str, ...]:
    """Those that so many requests can tell something of."""
    return NAMES if finished_count >= FEW else (STEADY, KILLED)


def scene(scenario: str, traffic: Traffic, finished_count: int, seed: int, number: int) -> Scene:
    """Run `number` of a scenario: its requests are the seed's; how far answers go, the number's too."""
    asked, own = (
        int(np.random.SeedSequence(key).generate_state(1)[0])
        for key in ([seed, NAMES.index(scenario)], [seed, NAMES.index(scenario), number])
    )
    count = -int(-finished_count * SENT_RATIO // 1)
    rate, surges = traffic.rate_per_s, tuple[Surge, ...]()
    if scenario == RELEASE:
        count = round(RELEASE_RATIO * count + START_RATIO * traffic.there.cold_start_s * rate)
    if scenario == KILLED:  # what comes again is to be there before the last request
        lasts_s = BACK_RATIO * traffic.there.cold_start_s + BACK_S
        count = max(count, round(rate * lasts_s / (1.0 - KILL_AT_FRACTION)))
    span_s = count / rate
    if scenario == BURST:  # the middle third of the time holds half of the requests
        span_s = count / rate * 3.0 / (2.0 + BURST_RATIO)
        surges = (Surge(span_s / 3.0, span_s * 2.0 / 3.0, BURST_RATIO),)
    model = replace(traffic.model, rate_per_s=rate, surges=surges)
    arrivals = drawn(model, traffic.answers, count, asked, own)
    fault: fault_types.Fault | None = None
    if scenario == KILLED:
        fault = fault_types.ReplicaCrash(KILL_AT_FRACTION * span_s, TWIN_VICTIM, back_after_s=0.0)
    elif scenario == RELEASE:
        fault = fault_types.Release(RELEASE_AT_S, "worse", step_factor=traffic.release_factor)
    return Scene(scenario, own, arrivals, fault)


def drawn(
    model: TrafficModel, answers: Sequence[float], count: int, seed: int, answers_seed: int
) -> tuple[fleet_types.Arrival, ...]:
    """So many requests of a class: each asks for its limit; how far its answer goes, `answers` say."""
    shares = np.random.default_rng((answers_seed, 1)).choice(np.array(answers), count)
    return tuple(
        each._replace(
            output_limit_tokens=each.output_tokens,
            output_tokens=max(1, round(each.output_tokens * float(share))),
        )
        for each, share in zip(islice(generate(model, seed, inf), count), shares, strict=True)
    )
