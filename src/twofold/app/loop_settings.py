"""What a loop on one machine is told: read off the spec and its plan, with what neither says decided here."""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from twofold.app.sources import REGISTRY_FOLDER
from twofold.catalog.model_config import read_model_config
from twofold.contracts.results.plan import Plan
from twofold.contracts.spec.parts import ModelReference
from twofold.contracts.spec.scenario_policies import Smaller
from twofold.contracts.spec.service import Service, Traffic
from twofold.contracts.spec.spec import Spec
from twofold.contracts.spec.training_run import TrainingRun
from twofold.core.errors import FileError, ValueRefusedError
from twofold.core.nvidia import accelerator_count
from twofold.gating.build import overflow_settings
from twofold.live.control.engines import ENGINES, KV_BLOCK_COUNT, EngineSettings, program_of
from twofold.live.gateway.engine_fields import PROTOCOL
from twofold.live.gateway.gateway_config import GatewayReplica
from twofold.live.gateway.reach import Reach
from twofold.live.server_urls import asking, server_url
from twofold.live.training.train_job import RECOMPUTES, TrainJob
from twofold.policy.gate import tiers as gate_tiers

MACHINE = "this-machine"
CHECKPOINTS_PER_RUN = 8
KILL_AFTER_FRACTION = 0.55  # of the steps: between two checkpoints, so that some steps are repeated
KILLED_RANK = 1
SEED = 20
LEARNING_RATES = {"finetune": 2e-5, "lora": 2e-4}  # as Llama 2 was tuned, and GPT-3 by the paper on LoRA
ENGINES_HERE = tuple(kind for kind, engine in ENGINES.items() if engine.program)
OURS = "transformers"  # brought by the extra [train], which is asked for by its name
BATCH_TOKENS = 2048  # prefill tokens of one engine step
CLOSED_LOADS = (1, 4, 16)  # clients
GATEWAY_PORT = 8700
STATE_FOLDER = ".twofold"
SHARES = 2  # of a machine, where no training run says how many
NEEDED_BYTES_PER_PROCESS = 1_000_000_000  # a rank or a replica with its libraries: 0.6-0.9 GB were seen
DTYPES = {"fp32": "float32", "bf16": "bfloat16"}


OnProgress = Callable[[str], None]  # hears what is going on, in words


@dataclass(frozen=True, slots=True)
class ServeSettings:
    """One service, and the loads that it is measured under."""

    name: str
    class_name: str
    replica_count: int  # as many as the machine has shares for; once planned, no more than that
    planned_format: str  # as plans name it: fp32
    weights_format: str  # as the engine does: float32
    thread_count: int
    input_tokens: int
    output_tokens: int
    rate_per_s: float  # of the open load: the peak that the class plans for
    load_s: float  # how long each load is held
    engine: str  # of `engines.ENGINES`
    program: str = ""  # its executable; "": the one that is found
    model_config: Path = Path()
    registered: str = ""  # what is served of the registry, as the spec names it; "": what is trained
    overflow: GatewayReplica | None = None  # the spec's hosted API
    samples_fraction: float = 0.0  # of the requests whose text is kept, as the spec opts in
    tier_servers: tuple[GatewayReplica, ...] = ()  # of the spec's CPU tiers
    tier_commands: tuple[tuple[str, str, int], ...] = ()  # of those to start: name, command and port
    server: EngineSettings | None = None  # the spec's own, which runs already
    signed_by: str = ""  # the public key that the spec asks signatures of
    evaluated_on: Path | None = None  # the evaluation set that the spec names
    smaller: Smaller | None = None  # what answers in need
    device: str = "cpu"  # cuda: an accelerator for each replica
    kv_block_count: int = KV_BLOCK_COUNT  # of a replica's cache
    closed_loads: tuple[int, ...] = CLOSED_LOADS

    @property
    def engine_count(self) -> int:
        """Engines that share the machine: the replicas, and what answers in need."""
        return self.replica_count + (self.smaller.replicas if self.smaller is not None else 0)


@dataclass(frozen=True, slots=True)
class LoopRequest:
    """What `up` was asked for, once read."""

    spec: Path
    state: Path
    training: TrainJob | None  # its zero stage apart; None: the spec serves a model of the registry
    serving: ServeSettings
    port: int
    progress: OnProgress
    model_name: str  # what the model is called in the registry
    reach: Reach = field(default_factory=Reach)  # of the gateway

    @property
    def share_count(self) -> int:
        """Equal shares of the machine: one for a rank, or for a replica."""
        return self.serving.replica_count if self.training is None else self.training.rank_count

    @property
    def registry(self) -> Path:
        """The folder of the registry beside the spec; it outlives `down`."""
        return self.spec.resolve().parent / REGISTRY_FOLDER


def name_of(text: str) -> str:
    """What a training run is called in the registry.

    >>> name_of("My Model/7b"), name_of("7")
    ('my-model-7b', 'model-7')
    """
    name = "".join(each if each.isalnum() and each.isascii() else "-" for each in text.lower()).strip("-")
    return f"model-{name}".rstrip("-") if not name or name.isdigit() or name == "sha256" else name[:64]


def engine_settings(told: ServeSettings, artefact: Path, digest: str = "") -> EngineSettings:
    """One replica, of a folder whose manifest has this digest; or the server that stands in its place."""
    return told.server or EngineSettings(
        str(artefact),
        told.weights_format,
        told.thread_count,
        told.kv_block_count,
        BATCH_TOKENS,
        device=told.device,
        kind=told.engine,
        program=told.program,
        digest=digest,
    )


def train_settings(spec: Spec, state: Path) -> TrainJob:
    """The one training run of a loop, losing one worker on the way; how it shards is for its plan to say.

    Raises ValueRefusedError for what cannot run here.
    """
    run = _only(spec.training, "training")
    config = config_of(run.model, f"training `{run.name}`")
    rank_count = _count_here(run, f"training `{run.name}`")
    if run.steps is None:
        raise ValueRefusedError(f"training `{run.name}` gives no `steps`", hint="write `steps: 110`")
    batch = run.global_batch_sequences
    if batch % rank_count:
        what = f"a batch of {batch} sequences does not divide by {rank_count} ranks"
        hint = f"write `global_batch: {rank_count * max(1, batch // rank_count)} seq`"
        raise ValueRefusedError(what, hint=hint)
    every = max(1, run.steps // CHECKPOINTS_PER_RUN)
    kill = int(run.steps * KILL_AFTER_FRACTION)
    is_killed = rank_count > KILLED_RANK and kill > every
    begins = {} if run.kind == "pretrain" else _beginning(run, config)
    return TrainJob(
        name=run.name,
        folder=state / "train" / run.name,
        model_config=config,
        rank_count=rank_count,
        steps=run.steps,
        sequence_tokens=int(run.sequence_tokens),
        global_batch_sequences=batch,
        precision=run.precision,
        checkpoint_every_steps=every,
        seed=SEED,
        device=device_here(rank_count),
        kill_rank=KILLED_RANK if is_killed else None,
        kill_after_step=kill if is_killed else None,
        data=_data_of(run, state),
        **begins,
    )


def laid_out(job: TrainJob, planned: Plan) -> TrainJob:
    """The job with what the plan's layout says of it: how it shards, accumulates and recomputes."""
    layout = planned.training[0].layout
    if layout is None:
        return job
    return replace(
        job,
        zero_stage=layout.zero_stage,
        micro_batch_sequences=layout.micro_batch if layout.dp == job.rank_count else 0,
        recompute=layout.recompute if layout.recompute in RECOMPUTES else "none",
    )


def other_layout(planned: Plan) -> str:
    """In words, what of the planned layout the trainer does not do; "" when it does all of it."""
    layout = planned.training[0].layout if planned.training else None
    if layout is None or (layout.tp * layout.cp * layout.pp == 1 and layout.recompute in RECOMPUTES):
        return ""
    return f"planned as {layout.text}; the trainer has data parallel ranks, and recomputes other parts"


def _beginning(run: TrainingRun, config: Path) -> dict[str, Any]:
    """What fine-tuning begins with, and how fast it learns."""
    folder = config.parent
    if not any(folder.glob("*.safetensors")):
        what = f"training `{run.name}`: `kind: {run.kind}` begins with weights, and `{folder}` holds none"
        hint = "put the model's safetensors beside its config.json, or write `kind: pretrain`"
        raise ValueRefusedError(what, hint=hint)
    return {
        "weights": str(folder.resolve()),
        "adapter_rank": run.lora_rank if run.kind == "lora" else 0,
        "peak_learning_rate": LEARNING_RATES[run.kind],
    }


def _data_of(run: TrainingRun, state: Path) -> str:
    """Patterns as the trainer reads them; those of this machine lie beside the spec."""
    patterns = [each.strip() for each in (run.data or "").split(",") if each.strip()]
    spec_folder = state.absolute().parent
    return ",".join(each if "://" in each else str(spec_folder / each) for each in patterns)


def device_here(share_count: int) -> str:
    """What `this-machine` stands for in so many shares: its accelerators where the driver shows one for each,
    as `measure device` has it, else its processor."""
    return "cuda" if 0 < share_count <= accelerator_count() else "cpu"


def serve_settings(spec: Spec, load_s: float, program: str = "") -> ServeSettings:
    """The one service of a loop: its first class sets lengths and rate. A replica has a rank's share.

    `program` is the engine's executable where it is not found by its name. Raises ValueRefusedError, and
    FileError for an engine that is not there.
    """
    service = _only(spec.services, "serving")
    slot_count = _shares_of(spec, service)
    class_name, latency_class = next(iter(service.classes.items()))
    traffic = latency_class.traffic
    if traffic.rate_per_s is None:
        raise ValueRefusedError(f"class `{class_name}` gives no `rate`", hint="write `rate: 1 /s`")
    published = read_model_config(Path(service.model.config)).served_format
    weights = service.quantisation[0] if service.quantisation else published
    cache = service.kv_quantisation[0] if service.kv_quantisation else weights
    if weights not in DTYPES:
        hint = f"write one of {', '.join(DTYPES)}"
        raise ValueRefusedError(f"`quantisation: {weights}` cannot be served here", hint=hint)
    if cache != weights:
        what = f"the cache is kept in `{weights}` here, not in `{cache}`"
        raise ValueRefusedError(what, hint=f"write `kv_quantisation: {weights}`")
    _need_room(traffic, Path(service.model.config), service.engine, device_here(slot_count))
    return ServeSettings(
        name=service.name,
        class_name=class_name,
        replica_count=slot_count,
        planned_format=weights,
        weights_format=DTYPES[weights],
        thread_count=max(1, (os.cpu_count() or 1) // slot_count),
        input_tokens=int(traffic.input.mean_tokens),
        output_tokens=int(traffic.output.mean_tokens),
        rate_per_s=traffic.rate_per_s * traffic.peak_ratio,
        load_s=load_s,
        engine=service.engine,
        overflow=overflow_of(service),
        samples_fraction=service.samples_fraction,
        tier_servers=tuple(servers := [*tier_servers(service)]),
        tier_commands=tuple(_commands(service, servers)),
        model_config=Path(service.model.config),
        registered=service.model.registry or "",
        server=server_of(service),
        signed_by=str(service.signed_by.resolve()) if service.signed_by else "",
        evaluated_on=service.evaluated_on,
        smaller=smaller_here(service),
        device=device_here(slot_count),
        program=program_of(service.engine, program)
        if not service.server and (program or service.engine != OURS)
        else "",
    )


def smaller_here(service: Service) -> Smaller | None:
    """What answers in need, as it can be had here. Raises ValueRefusedError for what cannot."""
    told = service.policies.smaller
    if told is None:
        return None
    whose, hint = f"service `{service.name}`: what answers in need", "leave `smaller` out of `degradation`"
    if service.server is not None:
        raise ValueRefusedError(f"{whose} is an engine of ours, and its server is not", hint=hint)
    if told.model is not None and told.model.registry is None:
        hint = "register it with `twofold registry push`, and name it by its digest or as NAME@serving"
        raise ValueRefusedError(f"{whose} comes out of the registry here", hint=hint)
    if told.quantisation is not None and service.engine != OURS:
        what = f"{whose}: `{service.engine}` reads no {told.quantisation} copy that is made here"
        raise ValueRefusedError(
            what, hint="name a smaller model of the registry: `smaller: {model: NAME@serving}`"
        )
    return told


def server_of(service: Service) -> EngineSettings | None:
    """The spec's own server. Raises ValueRefusedError for a key that is not there."""
    told = service.server
    if told is None:
        return None
    variable, authorities = told.key_env or "", str(told.ca or "")
    asking(variable, authorities, tls=server_url(told.url).tls)  # what is missing is said now
    return EngineSettings(
        "",
        "",
        1,
        0,
        BATCH_TOKENS,
        kind=told.engine or PROTOCOL,
        url=told.url,
        model=told.model,
        key_variable=variable,
        authorities=authorities,
    )


def tier_servers(service: Service) -> Iterator[GatewayReplica]:
    """Where the gateway asks the servers of a service's CPU tiers. Raises ValueRefusedError without any."""
    for name, tier in service.before.items():
        if not tier.urls:
            what = f"tier `{name}` of service `{service.name}` has no servers here"
            raise ValueRefusedError(what, hint="start them, and write a URL for each as its `urls`")
        for replica_id, url in zip(gate_tiers.replica_ids(name, len(tier.urls)), tier.urls, strict=True):
            at = server_url(url)
            yield GatewayReplica(replica_id, at.host, at.port, "", tier.limit, tls=at.tls, prefix=at.prefix)


def _commands(service: Service, servers: Sequence[GatewayReplica]) -> Iterator[tuple[str, str, int]]:
    """Those of the servers that the spec says how to start."""
    commands = {name: tier.command for name, tier in service.before.items()}
    for each in servers:
        command = commands[each.replica_id.rpartition("-")[0]]
        if command is not None:
            yield each.replica_id, command, each.port


def overflow_of(service: Service) -> GatewayReplica | None:
    """Where the gateway asks the spec's hosted API; its key need not be there."""
    told, gate = service.overflow, overflow_settings(service)
    if told is None or gate is None:
        return None
    at, variable, authorities = server_url(told.url), told.key_env or "", str(told.ca or "")
    return GatewayReplica(
        gate.replica_id,
        at.host,
        at.port,
        told.model,
        gate.in_flight_limit,
        tls=at.tls,
        prefix=at.prefix,
        key_variable=variable,
        authorities=authorities,
        engine=told.engine or PROTOCOL,
    )


def _shares_of(spec: Spec, service: Service) -> int:
    """How many replicas the machine holds: as many as ranks of what is trained and served."""
    if not service.model.registry:
        run = _only(spec.training, "training")
        _serves_what_is_trained(service, run)
        return _count_here(run, f"training `{run.name}`")
    if spec.training:
        what = f"service `{service.name}` is of the registry, and a training run is beside it"
        raise ValueRefusedError(
            what, hint="leave out one of the two: what a run trains, its own `up` registers"
        )
    _can_serve(service)
    return min(SHARES, os.cpu_count() or 1)


def _can_serve(service: Service) -> None:
    whose = f"service `{service.name}`"
    if _count_here(service, whose) != 1:
        what, hint = f"{whose}: a replica has one share of this machine", f"write `on: 1x{MACHINE}`"
    elif service.server is None and service.engine not in ENGINES_HERE:
        what = f"{whose}: `{service.engine}` cannot serve here"
        hint = f"write `engine:` with one of {', '.join(ENGINES_HERE)}, or `server:` with the URL of one"
    else:
        return
    raise ValueRefusedError(what, hint=hint)


def _serves_what_is_trained(service: Service, run: TrainingRun) -> None:
    """What is planned must be what is run, or the page compares two things."""
    _can_serve(service)
    if service.model.config is None or service.model.config != run.model.config:
        what = f"service `{service.name}` is of another model than training `{run.name}`"
        raise ValueRefusedError(what, hint="give the `model:` once, above both halves")


def _need_room(traffic: Traffic, config: Path, engine: str, device: str) -> None:
    """Raise ValueRefusedError when a mean request is longer than the model holds, or a replica's cache on
    processors, which is as large wherever it runs."""
    longest = longest_of(config)
    needed = int(traffic.input.mean_tokens) + int(traffic.output.mean_tokens)
    here = EngineSettings("", "", 1, KV_BLOCK_COUNT, BATCH_TOKENS, kind=engine).request_tokens
    holds = min(longest, here) if device == "cpu" else longest
    if needed > holds:
        raise ValueRefusedError(
            f"a request of {needed} tokens does not fit: model and cache hold {holds}",
            hint="shorten `input:` or `output:`, or use a model with more positions",
        )


def longest_of(config: Path) -> int:
    """Tokens of the model's context. Raises FileError for a config.json that does not say."""
    try:
        return int(json.loads(config.read_text("utf-8"))["max_position_embeddings"])
    except (OSError, ValueError, TypeError, KeyError) as error:
        what = f"`{config}` has no `max_position_embeddings`"
        raise FileError(what, hint="give a model's config.json") from error


def _only(entries: tuple[Any, ...], half: str) -> Any:
    if len(entries) != 1:
        raise ValueRefusedError(
            f"`up` runs one entry of `{half}` on this machine; the spec has {len(entries)}",
            hint=f"write one `{half}:`, as examples/laptop does",
        )
    return entries[0]


def config_of(model: ModelReference, whose: str) -> Path:
    if model.config is None:
        raise ValueRefusedError(
            f"{whose}: `up` trains from a config.json, from nothing else",
            hint="write `model: ./config.json`, a Llama shape small enough for this machine",
        )
    return Path(model.config)


def _count_here(entry: TrainingRun | Service, whose: str) -> int:
    if entry.on is None or entry.on.accelerator != MACHINE:
        raise ValueRefusedError(
            f"{whose} is not on this machine", hint=f"write `on: 1x2x{MACHINE}`: `up` runs where it is called"
        )
    return int(entry.on.count * (entry.on.accelerators_per_node or 1))
