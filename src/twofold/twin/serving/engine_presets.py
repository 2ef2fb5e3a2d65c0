"""Engines as their software sets them up, around the replica that `inference` plans with."""

import numpy as np

from twofold.inference import Replica, service_table
from twofold.perf import Floats, engine_software
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
        max_batch=int(_one(replica.max_batch)),
        chunk_tokens=max(1, int(_one(replica.chunk_tokens) * _one(replica.dp))),
        kv_tokens=table.kv_tokens,
        context_tokens=int(_one(replica.shape.max_context_tokens)),
        prefix_cache_tokens=table.kv_tokens,
        draft_tokens=round(_one(replica.draft_tokens)),
        draft_accept_fraction=min(_one(replica.draft_accept_fraction), 1.0 - 1e-9),
        first_token_s=_one(replica.engine.first_token_s),
        first_token_steps=_one(replica.engine.first_token_steps),
    )


def step_table(replica: Replica, step_factor: float = 1.0) -> StepTable:
    """The replica's step times in plain floats; all of them `step_factor` times as long."""
    return StepTable.from_service_table(service_table(replica), step_factor)


def _one(value: Floats) -> float:
    """The number of a replica that is one, not a sweep of many."""
    assert np.size(value) == 1, value
    return float(np.asarray(value).reshape(-1)[0])
