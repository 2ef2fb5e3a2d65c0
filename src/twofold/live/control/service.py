"""A service as its controller is told of it, and what its gateway and its replicas are told in turn."""

import json
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from twofold.core.data import from_data
from twofold.core.nvidia import accelerators
from twofold.live import processes
from twofold.live.control.engines import (
    BLOCK_TOKENS,
    HIDE_GPUS,
    EngineSettings,
    engine_command,
    engine_environment,
    engine_model,
    engine_name,
)
from twofold.live.control.tier_processes import TierProcess
from twofold.live.gateway.gateway_config import (
    GatewayAdmin,
    GatewayConfig,
    GatewayLimits,
    GatewayReplica,
    write_gateway_config,
)
from twofold.live.gateway.keys import keys_beside
from twofold.live.gateway.reach import Reach
from twofold.live.gateway.request_log import key_beside, requests_log, samples_log
from twofold.live.server_urls import server_url
from twofold.policy.gate import settings as gates
from twofold.policy.release.rules import Limits

GATEWAY_GRACE_S = 4.0  # below what `stop` waits before it ends a process


@dataclass(frozen=True, slots=True)
class PoolShare:
    """One of the pools that stand behind a service's gate."""

    name: str  # as the gate's rules call it
    replica_count: int
    in_flight_limit: int  # of one replica


@dataclass(frozen=True, slots=True)
class SmallerModel:
    """What answers in need, and by how many replicas."""

    name: str  # as the gate's classes call it
    engine: EngineSettings
    replica_count: int

    @property
    def version(self) -> str:
        """The name of its artefact's folder."""
        return Path(self.engine.artefact).name


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """A service on this machine."""

    engine: EngineSettings
    replica_count: int
    in_flight_limit: int  # of one replica
    port: int  # of the gateway
    input_token_s: float  # what the gate believes of a replica: seconds of prefill per prompt token …
    output_token_s: float  # … and per token of an answer
    gate: gates.GateSettings = field(default_factory=gates.GateSettings)
    name: str = ""  # what clients see as the model's name; "": that of the artefact's folder
    zones: tuple[str, ...] = ("",)  # named groups that the replicas are spread over
    first_token_s: float = 0.0  # believed of an answer's first token, beyond the reading of its prompt
    gate_digest: str = ""  # of what the gate was built as, for the twin and for this
    context_tokens: int = 0  # of the model: prompt and answer together; 0: not known
    overflow: GatewayReplica | None = None  # the hosted API of `gate.overflow`
    registry: str = ""  # the folder of the registry that is told how trials end; "": there is none
    registered: str = ""  # the model's name there
    questions: str = ""  # a file of questions that a release is judged by on the side; "": it is not
    samples_fraction: float = 0.0  # of the requests whose text is kept
    tier_servers: tuple[GatewayReplica, ...] = ()  # of `gate.tiers`
    tier_processes: tuple[TierProcess, ...] = ()  # those of them that are ours to start
    reach: Reach = field(default_factory=Reach)
    limits: Limits = field(default_factory=Limits)  # that a release keeps, whoever promotes it
    prompt_tokens: int = 0  # of a usual request, by which a release is measured; 0: not known …
    answer_tokens: int = 0  # … and of its answer
    pools: tuple[PoolShare, ...] = ()  # that the replicas are parted into; none: they are one
    smaller: SmallerModel | None = None  # that answers in need

    @property
    def version(self) -> str:
        """What a release is known by: the name of its artefact's folder, or of the model behind a URL."""
        return Path(self.engine.artefact).name or self.engine.model

    @property
    def beliefs(self) -> gates.Beliefs:
        """What the gate believes of a replica."""
        return gates.Beliefs(self.input_token_s, self.output_token_s, self.first_token_s)

    def limit_of(self, pool: str) -> int:
        """Requests that a replica of a pool may have at once."""
        return next((each.in_flight_limit for each in self.pools if each.name == pool), self.in_flight_limit)

    def pool_of(self, number: int) -> str:
        """The pool of a replica, by its number; "" where there is one of all."""
        for each in self.pools:
            if number < each.replica_count:
                return each.name
            number -= each.replica_count
        return self.pools[-1].name if self.pools else ""

    @property
    def url(self) -> str:
        """Where this machine asks the gateway."""
        return self.reach.url(self.port)


def replica_digest(engine: EngineSettings) -> str:
    """Of all that a replica's process is told but its port: equal ones need no restart."""
    if engine.url:
        return processes.digest_of([engine.url, engine.model, engine.key_variable, engine.authorities])
    told = [f"{name}={value}" for name, value in sorted(engine_environment(engine).items())]
    return processes.digest_of([*engine_command(engine), *told, engine_name(engine.kind)])


def replica_environment(engine: EngineSettings, replica_id: str) -> dict[str, str]:
    """What a replica's process is told: of several accelerators it sees its own, in turn by the number in
    its name."""
    seen = accelerators() if engine.device != "cpu" else []
    number = re.search(r"\d+$", replica_id)
    own = {HIDE_GPUS: seen[int(number[0]) % len(seen)]} if number and len(seen) > 1 else {}
    return {**engine_environment(engine), **own}


def gateway_config(
    settings: ServiceSettings,
    state: Path,
    replicas: Iterable[GatewayReplica] = (),
    admin: GatewayAdmin | None = None,
) -> GatewayConfig:
    """What the gateway's process is told. The replicas are those at its start; others come and go."""
    log = requests_log(state)
    return GatewayConfig(
        host=settings.reach.host,
        port=settings.port,
        certificate=settings.reach.certificate,
        private_key=settings.reach.private_key,
        replicas=tuple(replicas),
        beliefs=settings.beliefs,
        log=str(state / "gateway" / "events.jsonl"),
        requests_log=str(log),
        requests_key=str(key_beside(log)),
        model_name=settings.name or settings.version,
        gate=settings.gate,
        gate_digest=settings.gate_digest,
        limits=GatewayLimits(grace_s=GATEWAY_GRACE_S),
        admin=admin,
        keys_file=str(keys_beside(state)),
        engine=settings.engine.kind,
        context_tokens=settings.context_tokens,
        cache_tokens=_cache_tokens(settings.engine),
        tokenizer=str(Path(settings.engine.artefact) / "tokenizer.json"),
        overflow=settings.overflow,
        samples_log=str(samples_log(state)),
        samples_fraction=settings.samples_fraction,
        tier_servers=settings.tier_servers,
    )


def _cache_tokens(engine: EngineSettings) -> int:
    """What one request may fill of a replica's cache, but for a block; 0 where nobody knows."""
    return 0 if engine.url else max(0, engine.request_tokens - BLOCK_TOKENS)


NONE = gates.Beliefs(0.0, 0.0)
SAID_ELSEWHERE = ("classes", "overflow", "tiers")  # of a gate, what the spec says beside its policies


def gateway_digest(settings: ServiceSettings, state: Path) -> str:
    """Of what a running gateway cannot be told otherwise: all but its replicas, beliefs and admin port.

    Limits   a release with another tokenizer is counted by the one that the gateway began with.
    """
    told = write_gateway_config(_lasting(gateway_config(settings, state)))
    return processes.digest_of([told, settings.reach.digest])


def gateway_changes(config: Path, settings: ServiceSettings, state: Path) -> str:
    """What a running gateway was told otherwise, by `config`: names as the spec has them."""
    try:
        before = _lasting(from_data(GatewayConfig, json.loads(config.read_text("utf-8"))))
    except (OSError, ValueError):  # of another version
        return "its settings"
    after = _lasting(gateway_config(settings, state))
    gate = _different(before.gate, after.gate)
    names = [name if name in SAID_ELSEWHERE else f"policies.{name}" for name in gate]
    names += [name for name in _different(before, after) if name != "gate"]
    return ", ".join(names) or ("its certificate" if after.certificate else "its settings")


def _lasting(config: GatewayConfig) -> GatewayConfig:
    return replace(config, replicas=(), admin=None, tokenizer="", beliefs=NONE, gate_digest="")


def _different(one: Any, other: Any) -> list[str]:
    return [each.name for each in fields(one) if getattr(one, each.name) != getattr(other, each.name)]


def address_of(
    replica_id: str,
    engine: EngineSettings,
    host: str,
    port: int,
    in_flight_limit: int,
    pool: str = "",
    variant: str = "",
) -> GatewayReplica:
    """Where the gateway finds a replica, and how it asks one behind a URL."""
    model = engine_model(engine)
    local = GatewayReplica(replica_id, host, port, model, in_flight_limit, pool=pool, variant=variant)
    if not engine.url:
        return local
    at = server_url(engine.url)
    key, trusted = engine.key_variable, engine.authorities
    return replace(local, tls=at.tls, prefix=at.prefix, key_variable=key, authorities=trusted)


def added(address: GatewayReplica, zone: str, version: str) -> dict[str, Any]:
    """What the gate is told of a replica that may be sent requests."""
    return {
        "type": "ReplicaAdded",
        "replica_id": address.replica_id,
        "in_flight_limit": address.in_flight_limit,
        "zone": zone,
        "pool": address.pool,
        "model": address.variant,
        "version": version,
        "address": asdict(address),
    }
