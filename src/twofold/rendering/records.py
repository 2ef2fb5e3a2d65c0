"""What files are made from: pools and runs of a plan, flat, each with the path that it has there."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, exp, log, sqrt

from twofold.contracts.results import serving, training
from twofold.contracts.results.parts import Machine
from twofold.contracts.results.plan import Plan
from twofold.contracts.spec.parts import REPOSITORY
from twofold.core.errors import ValueRefusedError

FIRST_PORT = 8000
NAME_MOST = 52  # characters: with what controllers append, a label of DNS has 63
RARE_Z = 3.72  # normal deviate that one request in ten thousand lies above
ROOM = 1.05  # beyond the longest request
WORKERS = {"prefill": "workers for prompts", "decode": "workers for answers"}
TOKENS_STEP = 256  # lengths are rounded up to it
OWN_SERVER = "own-server"  # the engine where the plan has none: measured rows of what its owner knows


@dataclass(frozen=True, slots=True)
class ServedPool:
    """Equal replicas, and where their values stand in the plan (`at`)."""

    name: str  # of the files and objects, a label of DNS
    at: str  # path of the pool
    service: serving.ServicePlan
    pool: serving.Pool
    port: int
    longest_tokens: int  # prompt and answer of the longest request that is to be expected
    role: str = ""  # of workers apart: prefill or decode

    @property
    def is_own(self) -> bool:
        """Whether it runs a server of the user's own, of which batches were measured."""
        return self.pool.replica.engine == OWN_SERVER

    @property
    def weights(self) -> str:
        """What its weights are known by: the repository that the spec names, else its model."""
        return self.pool.repository or self.pool.model

    @property
    def classes(self) -> tuple[serving.ClassPlan, ...]:
        """Of the service those that it serves."""
        return tuple(each for each in self.service.classes if each.name in self.pool.classes)

    @property
    def title(self) -> str:
        """What one replica is, in a line."""
        size, count = self.pool.replica.accelerator_count, self.pool.replica_count
        kind = WORKERS.get(self.role, "replicas")
        what = f"{self.service.name}, {', '.join(self.pool.classes)}: one of {count} {kind}"
        return f"{what}, on {size} × {self.service.machine.accelerator}"

    @property
    def nodes_per_replica(self) -> int:
        """Servers that one replica stands on."""
        return ceil(self.pool.replica.accelerator_count / self.service.machine.accelerators_per_node)


@dataclass(frozen=True, slots=True)
class TrainedRun:
    """A run of a plan."""

    name: str
    at: str  # path of the run
    run: training.TrainingPlan

    @property
    def is_own(self) -> bool:
        """Whether software of the user's own runs it, of which steps were measured."""
        return self.run.layout is None

    @property
    def weights(self) -> str:
        """What the weights that it begins with are known by, as of a pool."""
        return self.run.repository or self.run.model

    @property
    def layout(self) -> training.Layout:
        """How it is split; only the owner knows of what was measured."""
        assert self.run.layout is not None
        return self.run.layout

    @property
    def software(self) -> str:
        """What trains, in words."""
        return "your training software" if self.is_own else self.run.framework or ""

    @property
    def title(self) -> str:
        """What it is, in a line."""
        machine = self.run.machine
        size = f"{machine.node_count} × {machine.accelerators_per_node} {machine.accelerator}"
        return f"{self.run.name}: {size}, {'as measured' if self.is_own else self.layout.text}"

    @property
    def sequence_tokens(self) -> int:
        """Tokens of one sequence."""
        batch, samples = self.run.batch_tokens, self.run.batch_samples
        return round(batch / samples) if batch and samples else 0

    @property
    def global_batch(self) -> int:
        """Sequences of one step."""
        return self.run.batch_samples or 0

    @property
    def steps_count(self) -> int:
        """Optimiser steps of the whole run."""
        return ceil(self.run.run.steps - 1e-6)

    @property
    def checkpoint_steps(self) -> int:
        """Steps between two checkpoints, by the interval that costs least."""
        steps = round(self.run.run.checkpoints.interval_s.value / self.run.step_s.value)
        return max(1, min(steps, self.steps_count))


def served_pools(plan: Plan, contexts: Mapping[str, int]) -> tuple[ServedPool, ...]:
    """Every pool of every service; `contexts` are the models' longest, 0 where unknown.

    Raises ValueRefusedError for names that no file has.
    """
    found: list[ServedPool] = []
    for service in plan.serving:
        for pool, at in _pools_of(service):
            alone = len(service.pools) <= 1
            name = label(plan.name, service.name, *(() if alone else (pool.name,)))
            own = [each for each in service.classes if each.name in pool.classes]
            longest = max((longest_tokens(each) for each in own), default=0)
            longest = min(longest, contexts.get(pool.model) or longest)
            found.append(ServedPool(name, at, service, pool, FIRST_PORT + len(found), longest))
    return tuple(found)


def _pools_of(service: serving.ServicePlan) -> Iterator[tuple[serving.Pool, str]]:
    """Pools and their paths. All replicas of measured rows are alike, and serve every class."""
    at = f"serving.{service.name}"
    for pool in service.pools:
        yield pool, f"{at}.pools.{pool.name}"
    if not service.pools:
        yield (
            serving.Pool(
                name=service.name,
                classes=tuple(each.name for each in service.classes),
                model=service.model,
                replica=replace(service.replica, engine=OWN_SERVER),
                replica_count=service.replica_count,
                spare_count=service.spare_count,
                rate_per_replica_per_s=min(each.rate_per_replica_per_s.value for each in service.classes),
                virtual_overhead_fraction=0.0,
            ),
            at,
        )


def with_workers_apart(pools: Sequence[ServedPool]) -> tuple[ServedPool, ...]:
    """Pools whose prompts the plan weighed on workers of their own, as these; the others as they are.

    Raises ValueRefusedError where the plan weighed none.
    """
    found: list[ServedPool] = []
    for pool in pools:
        apart = [each for choice in pool.service.choices for each in choice.workers]
        own = [each for each in apart if each.classes == pool.pool.classes]
        at = f"serving.{pool.service.name}.choices.disaggregation.workers"
        for each in own:
            work = replace(pool.pool, name=each.name, model=each.model, replica=each.replica)
            work = replace(work, replica_count=each.replica_count, spare_count=each.spare_count)
            found.append(
                replace(
                    pool, name=label(pool.name, each.role), at=f"{at}.{each.name}", pool=work, role=each.role
                )
            )
        found += [] if own else [pool]
    if not any(pool.role for pool in found):
        hint = "ask the plan to weigh it: `weigh: [disaggregation]`; `--details` says what it would take"
        raise ValueRefusedError("the plan has no workers for prompts apart from those for answers", hint=hint)
    return tuple(replace(pool, port=FIRST_PORT + at) for at, pool in enumerate(found))


def on_processors(machine: Machine) -> bool:
    """Whether what `up` starts runs there: the processors of a machine, or this one as it was measured."""
    return machine.accelerator.startswith("CPU") or machine.accelerator == "this-machine"


def label(*parts: str) -> str:
    """A name of files, containers and objects: lower case, digits and dashes.

    Raises ValueRefusedError where nothing is left of a part, or where all are too long together.

    >>> label("My_Plan", "chat")
    'my-plan-chat'
    """
    plain = [re.sub(r"[^a-z0-9]+", "-", part.lower()).strip("-") for part in parts]
    for part, left in zip(parts, plain, strict=True):
        if not left:
            raise ValueRefusedError(f"`{part[:64]}` names no file", hint="use letters, digits and dashes")
    name = "-".join(dict.fromkeys(plain))
    if len(name) > NAME_MOST:
        what = f"`{name[:80]}` is too long for a name, {len(name)} characters of {NAME_MOST}"
        raise ValueRefusedError(
            what, hint="shorten the `name` of the spec, the run, the service or the class"
        )
    return name


def apart(names: Sequence[str]) -> None:
    """Raises ValueRefusedError where two parts of a plan would have the same files, or the same variable."""
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        hint = "rename one of them in the spec"
        raise ValueRefusedError(f"two parts of the plan become `{twice[0]}`", hint=hint)


def longest_tokens(each: serving.ClassPlan) -> int:
    """Prompt and answer of the longest request of a class, with room.

    Formula  1.05 · (q(input) + q(output)), q the quantile of a log-normal that one in 10⁴ lies above
    Why      an engine reserves or refuses by the longest request it may get; the plan knows mean and spread
    Limits   both are taken to be long at once; rounded up to 256 tokens
    """
    prompt = _rare(each.input_tokens, each.input_spread_ratio)
    answer = _rare(each.output_tokens, each.output_spread_ratio)
    return ceil(ROOM * (prompt + answer) / TOKENS_STEP) * TOKENS_STEP


def _rare(mean: float | None, spread_ratio: float) -> float:
    """The length that one request in ten thousand exceeds."""
    if not mean:
        return 0.0
    deviation = sqrt(log(1.0 + spread_ratio**2))
    return mean * exp(RARE_Z * deviation - deviation**2 / 2.0)


def readable(plan: Plan) -> None:
    """Raises ValueRefusedError where a text of the plan holds what no comment or quoted word keeps.

    A spec refuses such names; a saved plan may have been changed by hand.
    """
    for text in texts_of(plan):
        if not text.isprintable() or '"' in text or text != text.strip():
            what = f"the plan holds {text[:64]!a}, which no file can say"
            raise ValueRefusedError(what, hint="write it again with `twofold plan SPEC --out FILE`")


def texts_of(plan: Plan) -> Iterator[str]:
    """Everything of a plan that people named and that files say."""
    yield plan.name
    for run in plan.training:
        words = [
            run.framework,
            run.precision,
            run.layout and run.layout.text,
            run.layout and run.layout.recompute,
        ]
        yield from (run.name, run.model, run.kind, run.machine.accelerator, *(word for word in words if word))
        yield from _repositories(run.repository)
    for service in plan.serving:
        yield from (service.name, service.model, service.machine.accelerator)
        yield from (each.name for each in service.classes)
        for pool in service.pools:
            words = [pool.replica.engine, pool.replica.weights_format, pool.replica.kv_format]
            yield from (pool.name, pool.model, *pool.classes, *(word for word in words if word))
            yield from _repositories(pool.repository)


def _repositories(name: str) -> Iterator[str]:
    """The name itself; one that a shell would read on is followed by what no file can say."""
    yield name if not name or REPOSITORY.fullmatch(name) else f"{name}\n"


def models_of(plan: Plan) -> Iterator[str]:
    """The models of what files are made of, each once; what was measured is none."""
    pools = [pool for service in plan.serving for pool in service.pools]
    runs = [run for run in plan.training if run.layout is not None]
    yield from dict.fromkeys([*(each.model for each in pools), *(each.model for each in runs)])
