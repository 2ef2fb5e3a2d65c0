"""A rehearsal of seconds: a few equal replicas and drawn requests, where no formula answers."""

from dataclasses import dataclass, replace
from heapq import merge

from twofold.contracts.spec.scenario_fleet import EngineChange
from twofold.gating.beliefs import half_full, replica_beliefs
from twofold.inference.replica import Replica, capacity
from twofold.inference.table import ServiceTable
from twofold.perf.types import one
from twofold.policy.gate import settings as gates
from twofold.rehearse.engine import engine_of
from twofold.twin.serving import fault_types, fleet_types
from twofold.twin.serving.fleet import simulate_fleet
from twofold.twin.serving.step_table import StepTable
from twofold.twin.serving.traffic import Lengths, Sessions, Surge, TrafficModel, generate

WARM_UP_FRACTION = 0.1
BLOCK_TOKENS = 128  # of prompts that requests share
START_S, DOWN_PAUSE_S = 30.0, 60.0  # of replicas that are scaled, as seconds stand for hours here
PROBED_S = 1.0
PATIENCE_S = 60.0  # a client that has no first token by then leaves
FOREGROUND, BULK = "short", "long"


@dataclass(frozen=True, slots=True)
class SmallWorld:
    """What is rehearsed; rates are of arrivals, lengths in tokens."""

    replica_count: int = 1
    rate_per_s: float = 1.0
    horizon_s: float = 40.0
    input_tokens: float = 1000.0
    output_tokens: float = 200.0
    spread_ratio: float = 1.645  # the 95th percentile of lengths over their mean
    gap_ratio: float = 1.0  # deviation of the gaps between arrivals: 1 is random, more comes in clumps
    surge_ratio: float = 1.0  # times the rate, in the middle fifth of the time
    turns_count: float = 1.0  # of a conversation, in the mean
    think_s: float = 5.0  # between its turns
    bulk_per_s: float = 0.0  # requests beside them, long and without a promise
    bulk_tokens: float = 8000.0  # of their prompts
    apart: int = 0  # replicas of their own for these; 0: all replicas are shared
    routing: str = "least-work"
    reserve: str = "prompt"
    batching: str = "continuous"
    admission: bool = False  # refuse what would miss the promise
    zone_count: int = 1
    zone_lost: bool = False  # the first of the zones, after a fifth of the time
    least_count: int = 0  # replicas that scaling keeps; 0: nothing is scaled
    first_token_s: float = 1.0  # the promise …
    token_s: float = 0.05  # … and that of each further one


@dataclass(frozen=True, slots=True)
class SmallFigures:
    """What became of the requests with a promise, and of the replicas."""

    ttft_s_p50: float | None
    ttft_s_p95: float | None
    ttft_s_p99: float | None
    e2e_s_p95: float | None
    late_fraction: float  # of all that arrived: later than promised, or not answered
    refused_fraction: float
    answered_per_s: float
    busy_fraction: float  # of ready time
    cached_fraction: float  # of prompt tokens that were found in caches
    replica_h: float  # paid


@dataclass(frozen=True, slots=True)
class SmallReplica:
    """A replica with its times as tables, which many rehearsals share."""

    replica: Replica
    table: ServiceTable
    steps: StepTable

    @classmethod
    def of(cls, replica: Replica) -> "SmallReplica":
        """With the tables of its steps."""
        table = ServiceTable.of(replica)
        return cls(replica, table, StepTable.from_service_table(table))

    def rehearsed(self, asked: SmallWorld, seed: int = 18) -> SmallFigures:
        """Draw requests and run them through gate and engines; equal arguments give equal figures."""
        replica = self.replica
        change = EngineChange.model_validate({"batching": asked.batching, "reserve": asked.reserve})
        limit = int(one(replica.max_batch))
        model = fleet_types.ReplicaModel(engine_of(replica, self.steps, change), limit)
        names = ("",) if not asked.apart else (FOREGROUND, BULK)
        blocks = round(one(capacity(replica).kv_tokens) / BLOCK_TOKENS)
        world = fleet_types.FleetWorld(
            models={(name, ""): model for name in names},
            replicas=tuple(_groups(asked)),
            gate=_gate(asked, limit, max(1, blocks)),
            beliefs=replica_beliefs(replica, self.table, half_full(self.table)),
            classes=_classes(asked),
            faults=(fault_types.ZoneLoss(asked.horizon_s / 5.0, "z0"),) if asked.zone_lost else (),
            prefix_block_tokens=BLOCK_TOKENS,
            horizon_s=asked.horizon_s,
            warm_up_s=WARM_UP_FRACTION * asked.horizon_s,
            seed=seed,
        )
        models = _traffic(asked)
        streams = [generate(each, seed + n, asked.horizon_s) for n, each in enumerate(models)]
        result = simulate_fleet(world, merge(*streams, key=lambda arrival: arrival.arrival_s))
        figures = result.classes[0]
        first, whole = figures.ttft_s, figures.e2e_s
        arrived = max(figures.arrived_count, 1)
        return SmallFigures(
            first.p50 if first else None,
            first.p95 if first else None,
            first.p99 if first else None,
            whole.p95 if whole else None,
            1.0 - figures.goodput_fraction,
            1.0 - figures.finished_count / arrived,
            figures.finished_count / result.figures.measured_s,
            result.figures.utilisation_fraction,
            result.figures.prefix_hit_fraction,
            result.replica_h,
        )


def _groups(asked: SmallWorld) -> list[fleet_types.ReplicaGroup]:
    """Replicas in their zones, those for long requests by themselves where they are apart."""
    if asked.apart:
        counts = {FOREGROUND: asked.replica_count - asked.apart, BULK: asked.apart}
        return [
            fleet_types.ReplicaGroup(count, fleet_types.replica_order(pool=name))
            for name, count in counts.items()
        ]
    each, more = divmod(asked.replica_count, asked.zone_count)
    zones = [f"z{n}" for n in range(asked.zone_count)] if asked.zone_count > 1 else [""]
    return [
        fleet_types.ReplicaGroup(each + (n < more), fleet_types.replica_order(zone=zone))
        for n, zone in enumerate(zones)
    ]


def _gate(asked: SmallWorld, limit: int, blocks: int) -> gates.GateSettings:
    rules = gates.PoolRules(FOREGROUND, BULK, (BULK,), borrow_fraction=0.0) if asked.apart else None
    scaled = gates.PoolScaling(min_count=asked.least_count, max_count=asked.replica_count)
    return gates.GateSettings(
        probe_every_s=PROBED_S,
        routing=gates.Routing(asked.routing),
        routes=gates.RoutingSettings(
            prefix_block_tokens=BLOCK_TOKENS, prefix_blocks_per_replica_count=blocks, pools=rules
        ),
        classes=tuple(
            gates.ClassSettings(name, ttft_slo_s=promises[0], tpot_slo_s=promises[1])
            for name, promises in (
                (FOREGROUND, (asked.first_token_s, asked.token_s)),
                (BULK, (None, None)),
            )
        ),
        admission=gates.AdmissionSettings() if asked.admission else None,
        scaling=gates.ScalingSettings(
            (replace(scaled, in_flight_limit_count=limit),), start_s=START_S, down_pause_s=DOWN_PAUSE_S
        )
        if asked.least_count
        else None,
    )


def _classes(asked: SmallWorld) -> tuple[fleet_types.ClassModel, ...]:
    client = fleet_types.ClientModel(patience_s=PATIENCE_S)
    most = round(4 * asked.output_tokens)
    return (
        fleet_types.ClassModel(FOREGROUND, client, most, ttft_s=asked.first_token_s, tpot_s=asked.token_s),
        fleet_types.ClassModel(BULK, fleet_types.ClientModel(), most),
    )


def _traffic(asked: SmallWorld) -> list[TrafficModel]:
    def lengths(mean: float) -> Lengths:
        return Lengths(mean, mean * asked.spread_ratio, round(4 * mean))

    fifth = asked.horizon_s / 5.0
    surges = (Surge(2 * fifth, 3 * fifth, asked.surge_ratio),) if asked.surge_ratio != 1.0 else ()
    talk = Sessions(asked.turns_count, asked.think_s) if asked.turns_count > 1.0 else None
    short = TrafficModel(
        asked.rate_per_s, lengths(asked.input_tokens), lengths(asked.output_tokens), FOREGROUND,
        asked.gap_ratio, surges=surges, sessions=talk, block_tokens=BLOCK_TOKENS,
    )  # fmt: skip
    if not asked.bulk_per_s:
        return [short]
    long = replace(
        short, rate_per_s=asked.bulk_per_s, input=lengths(asked.bulk_tokens), class_name=BULK, surges=(),
        sessions=None,
    )  # fmt: skip
    return [short, long]
