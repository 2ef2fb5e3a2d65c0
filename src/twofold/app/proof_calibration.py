"""The first half of a proof: what this service does with one half of the prompts, and step times that say it.

Loads from the lightest on: replicas one by one with a release that is worse, all places full (the knee), two
rates at random, a replica that is killed, and one more that starts beside all, so that what it takes of the
others is known too: they share one machine.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import inf

import numpy as np

from twofold.app.loop_settings import OnProgress
from twofold.app.loop_stages import own_endpoint
from twofold.app.proof_runs import LiveRan, Standing, run_live
from twofold.app.proof_scenarios import KILL_AT_FRACTION, STEADY_FRACTION, TWIN_VICTIM, drawn
from twofold.contracts.results import proof
from twofold.core.errors import RunError
from twofold.live.control import trials
from twofold.live.control.engines import BLOCK_TOKENS
from twofold.live.loads import loader, loads
from twofold.live.loads.texts import Texts
from twofold.rehearse import as_measured, step_fit
from twofold.rehearse.run import PoolTask
from twofold.twin.serving import fault_types
from twofold.twin.serving.traffic import TrafficModel, generate

ALONE_ROUNDS, ALONE_REQUESTS = 3, 4
BUSY_FRACTION = 0.75  # of the knee: the heavier of two rates
FULL_ROUNDS = 8  # requests per place, by which the knee is known
SEEN_COUNT = 300  # requests of a rate
KILLED_RATIO, KILLED_MOST = 1.5, 150  # of that many, where a replica is killed, and at most
MORE_AT_S, MORE_RATIO = 1.0, 1.5  # when a replica more starts, and its start over one in a dead one's place
MORE_LEAST = 30  # requests meanwhile


@dataclass(frozen=True, slots=True)
class Calibration:
    """What the first half came to."""

    fit: step_fit.Fit
    there: as_measured.Deployed
    knee_per_s: float
    release_factor: float  # of the worse release's tokens
    answers: tuple[float, ...]  # answers' lengths over what was asked for
    use: proof.MachineUse


@dataclass(frozen=True, slots=True)
class Bench:
    """What a calibration works with."""

    standing: Standing
    task: PoolTask
    model: TrafficModel
    texts: Texts  # the half that calibrates
    seed: int
    seen_count: int = SEEN_COUNT


def calibrate(bench: Bench, tell: OnProgress) -> Calibration:
    """Load the service with one half of the prompts, kill a replica of it, and fit the twin to all that."""
    standing = bench.standing
    tell("calibrate: a worse release beside this one")
    factor = release_factor(bench)
    tell("calibrate: all places full")
    knee_per_s, lengths = find_knee(bench)
    held = Loads(bench, lengths, tell)
    steady_per_s = STEADY_FRACTION * knee_per_s
    held.hold(steady_per_s, bench.seen_count)
    held.hold(BUSY_FRACTION * knee_per_s, bench.seen_count)
    killed_count = min(KILLED_MOST, round(KILLED_RATIO * bench.seen_count))
    there = deployed(standing, held.hold(steady_per_s, killed_count, kills=True))
    if bench.task.world.gate.scaling is None:  # else the gate would let it go
        count = round((MORE_AT_S + MORE_RATIO * there.cold_start_s) * steady_per_s)
        held.hold(steady_per_s, max(MORE_LEAST, count), one_more_s=MORE_AT_S)
    runs, live = held.runs, held.live
    tell("calibrate: fit the twin")
    fit = step_fit.fitted(bench.task, there, runs, first_guess(bench))
    answers = tuple(
        share
        for run, one in zip(runs, live, strict=True)
        for share in _shares([each.output_limit_tokens for each in run.arrivals], one.load)
    )
    use = _together([each.use for each in live])
    return Calibration(fit, there, knee_per_s, factor, answers or (1.0,), use)


@dataclass(slots=True)
class Loads:
    """The loads that a fit is made of. Mutable: grows by each that is held."""

    bench: Bench
    lengths: tuple[float, ...]  # how far answers go
    tell: OnProgress
    runs: list[step_fit.Measured] = field(default_factory=list)
    live: list[LiveRan] = field(default_factory=list)

    def hold(
        self, rate_per_s: float, count: int, *, kills: bool = False, one_more_s: float | None = None
    ) -> LiveRan:
        """So many requests at random, while a replica is killed or one more starts.

        Where one more starts, requests count that came before it served. Raises RunError where it never did.
        """
        bench = self.bench
        what = ", a replica killed" * kills + ", a replica more" * (one_more_s is not None)
        self.tell(f"calibrate: {rate_per_s:.2g} requests/s{what}")
        own = _stream(bench.seed, len(self.runs))
        arrivals = drawn(replace(bench.model, rate_per_s=rate_per_s), self.lengths, count, own, own)
        at_s = KILL_AT_FRACTION * count / rate_per_s
        fault = fault_types.ReplicaCrash(at_s, TWIN_VICTIM, back_after_s=0.0) if kills else None
        ran = run_live(bench.standing, arrivals, bench.texts, fault, one_more_s)
        faults = () if fault is None else (fault,)
        if one_more_s is not None and ran.more_s is None:
            hint = "`twofold logs` says what it had to say; prove it again"
            raise RunError("a replica more did not come, so that what it takes is not known", hint=hint)
        until_s = inf if ran.more_s is None else ran.more_s
        self.runs.append(step_fit.Measured(arrivals, ran.ran, faults, one_more_s, until_s))
        self.live.append(ran)
        return ran


def find_knee(bench: Bench) -> tuple[float, tuple[float, ...]]:
    """What the service finishes per second with all its places full, and how far its answers go."""
    settings = bench.standing.settings
    places = settings.in_flight_limit * settings.replica_count
    trials.until_whole(bench.standing.state, settings.version, settings.replica_count)
    wanted = generate(replace(bench.model, rate_per_s=1.0), _stream(bench.seed, 9), inf)
    asked: list[int] = []

    def prompts() -> Iterator[loader.Prompt]:
        for each in wanted:
            asked.append(each.output_tokens)
            yield bench.texts.prompt(each.input_tokens, each.output_tokens)

    load = loader.hold_closed(
        own_endpoint(bench.standing.state, settings.name or settings.version),
        prompts(),
        places,
        max_tokens=1,
        request_count=places * FULL_ROUNDS,
    )
    point = loads.load_point("full", load, concurrency=places)
    if not point.requests_per_s:
        what = "the service finished nothing while it was calibrated"
        raise RunError(what, hint="`twofold logs` says what its replicas had to say")
    return point.requests_per_s, tuple(_shares(asked, load))


def release_factor(bench: Bench) -> float:
    """How much longer a token of the worse release takes, each alone: by turns, so that both see one machine.

    Raises RunError when its engine does not start, and where one of the two answers nothing.
    """
    standing = bench.standing
    names = trials.until_whole(standing.state, standing.settings.version, standing.settings.replica_count)
    ours = trials.address_of(standing.state, names[0], standing.settings.engine)
    times: tuple[list[float], list[float]] = ([], [])
    with trials.engine_alone(standing.state, standing.release) as other:
        for _ in range(ALONE_ROUNDS):
            for address, into in zip((ours, other), times, strict=True):
                into += _token_times_s(bench, loader.bare_endpoint(*address))
    if not all(times):
        what = f"{'the release' if times[0] else 'the service'} answered nothing while it was calibrated"
        raise RunError(what, hint=f"see {standing.state / 'logs'}")
    return max(1.0, float(np.median(times[1]) / np.median(times[0])))


def deployed(standing: Standing, killed: LiveRan) -> as_measured.Deployed:
    """The replicas that stand there; a cold start as it was beside others at work, from a death on.

    Raises RunError where no replica was killed: goals of a death are beyond its cold start.
    """
    settings = standing.settings
    if killed.done_s is None:
        raise RunError("no replica could be killed, so that no cold start is known", hint="prove it again")
    trials.until_whole(standing.state, settings.version, settings.replica_count)
    cold_s = killed.added_s
    if cold_s is None:
        cold_s = time.monotonic() - killed.done_s
    engine = settings.engine
    return as_measured.Deployed(
        settings.replica_count, engine.kv_capacity_tokens, BLOCK_TOKENS, engine.batch_tokens, cold_s
    )


def first_guess(bench: Bench) -> as_measured.StepTimes:
    """What the gate believes of a replica: the fit goes on from there."""
    believed = bench.task.world.beliefs
    token_s = max(believed.output_token_s, 1e-4)
    return as_measured.StepTimes(
        base_s=0.7 * token_s,
        sequence_s=0.1 * token_s,
        prompt_s=0.3 * token_s,
        prompt_token_s=max(believed.input_token_s, 1e-6) / 2.0,
        first_token_s=max(believed.first_token_s / 2.0, 1e-3),
        crowd_ratio=1.3,
    )


def _token_times_s(bench: Bench, endpoint: loader.Endpoint) -> list[float]:
    model = bench.model
    tokens = max(8, round(model.output.mean_tokens))
    prompt = bench.texts.endless(max(1, round(model.input.mean_tokens)))
    count = ALONE_REQUESTS
    load = loader.hold_closed(endpoint, prompt, 1, max_tokens=tokens, request_count=count, warmup_count=1)
    return loads.token_times_s(load)


def _shares(limits_tokens: Sequence[int | None], load: loads.Load) -> Iterator[float]:
    """How far answers went that ended; one that was refused or broke off does not tell."""
    for limit, answer in zip(limits_tokens, load.answers, strict=True):
        if answer.outcome is loads.Outcome.FINISHED and limit:
            yield min(1.0, answer.output_tokens / limit)


def _stream(seed: int, part: int) -> int:
    """A stream of chance that no live run of the proof has."""
    return int(np.random.SeedSequence([seed, 99, part]).generate_state(1)[0])


def _together(uses: list[proof.MachineUse]) -> proof.MachineUse:
    others = sum(each.others_cores for each in uses) / len(uses)
    return proof.MachineUse(uses[0].load_average_before, uses[-1].load_average_after, others)
