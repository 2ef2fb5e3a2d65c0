"""The serving software of a rehearsed replica: as planned, set otherwise, or parted by prompt and answer."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from twofold.contracts.spec.scenario_fleet import EngineChange
from twofold.inference.replica import Replica, capacity
from twofold.perf.software import engine_software
from twofold.perf.types import one
from twofold.twin.serving import fleet_types
from twofold.twin.serving.disaggregated import DisaggregatedEngine
from twofold.twin.serving.engine import Engine
from twofold.twin.serving.engine_types import EngineSettings, PrefillMode, Reservation
from twofold.twin.serving.step_table import StepTable


def engine_settings(replica: Replica, table: StepTable) -> EngineSettings:
    """The replica's engine: its software's preset with the replica's limits and the engine's constants."""
    software = engine_software(replica.engine.name)
    return EngineSettings(
        # Public benchmarks reject prefill that holds decoding up: chunks are mixed in.
        prefill_mode=PrefillMode.MIXED,
        block_tokens=software.block_tokens,
        watermark_fraction=software.watermark_fraction,
        reservation=Reservation.ANSWER if software.reserves_answer else Reservation.PROMPT,
        max_batch=int(one(replica.max_batch)),
        chunk_tokens=max(1, int(one(replica.chunk_tokens) * one(replica.dp))),
        kv_tokens=table.kv_tokens,
        context_tokens=int(one(replica.shape.max_context_tokens)),
        prefix_cache_tokens=table.kv_tokens,
        draft_tokens=round(one(replica.draft_tokens)),
        draft_accept_fraction=min(one(replica.draft_accept_fraction), 1.0 - 1e-9),
        first_token_s=one(replica.engine.first_token_s),
        first_token_steps=one(replica.engine.first_token_steps),
    )


def engine_of(
    replica: Replica, steps: StepTable, change: EngineChange
) -> Callable[[], fleet_types.ServingEngine]:
    """What makes one cold replica's engine, as the scenario sets it; it can be sent to another process."""
    settings = changed_engine(engine_settings(replica, steps), change)
    if settings.reservation is Reservation.CONTEXT:  # a piece is no longer than the cache
        blocks = int(one(capacity(replica).kv_tokens) / settings.block_tokens)
        piece_tokens = min(settings.context_tokens, blocks * settings.block_tokens)
        settings = replace(settings, context_tokens=piece_tokens)
    if change.prefill != "separate":
        return partial(Engine, steps, settings)
    counts = (change.prefill_workers, change.decode_workers)
    return partial(separate_engine, steps, settings, counts, transfer_token_s(replica))


def transfer_token_s(replica: Replica) -> float:
    """Seconds that the cache of one token takes from a prefill worker to a decode worker.

    Formula  bytes of its keys and values / accelerators / rate of an accelerator's network card
    Why      Each accelerator sends its own part; as in `disaggregated`.
    """
    moved_bytes = one(replica.shape.kv_bytes(replica.kv_format, 1.0))
    return moved_bytes / one(replica.accelerator_count) / one(replica.cluster.network.nic_bytes_per_s)


def separate_engine(
    steps: StepTable, settings: EngineSettings, counts: tuple[int, int], token_s: float
) -> DisaggregatedEngine:
    """Prefill workers, which do nothing else, and decode workers; the first token is late but once."""
    quiet = replace(settings, first_token_s=0.0, first_token_steps=0.0)
    alone = replace(quiet, prefill_mode=PrefillMode.EXCLUSIVE)
    return DisaggregatedEngine(
        [Engine(steps, alone) for _ in range(counts[0])],
        [Engine(steps, quiet) for _ in range(counts[1])],
        token_s,
        first_token_s=settings.first_token_s,
    )


def changed_engine(settings: EngineSettings, change: EngineChange) -> EngineSettings:
    """The engine as a scenario sets its scheduler and cache; the rest stays as its software's."""
    said = change.model_fields_set
    # Of the workers that decode, where prompts have their own.
    mode = PrefillMode.EXCLUSIVE if change.prefill == "exclusive" else PrefillMode.MIXED
    return replace(
        settings,
        static_wait_s=change.wait_s if change.batching == "static" else None,
        prefill_mode=mode if "prefill" in said else settings.prefill_mode,
        reservation=Reservation(change.reserve) if "reserve" in said else settings.reservation,
        prefix_cache_tokens=settings.prefix_cache_tokens if change.prefix_cache == "on" else 0,
    )
