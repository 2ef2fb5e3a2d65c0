"""Measured training runs as rows of a truth table, in the columns that `predict` and `calibrate` read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from twofold.catalog.types import Model
from twofold.contracts.results import trained
from twofold.core.tables import harmless
from twofold.measure.truth import Row

COLUMNS = (
    "id", "source", "source_ref", "model", "params_total", "layers", "hidden", "heads", "kv_heads",
    "head_dim", "ffn_hidden", "vocab", "seq_len", "gpu", "gpus", "gpus_per_node", "dp", "tp", "pp", "cp",
    "ep", "zero_stage", "micro_batch", "global_batch_seqs", "framework", "precision", "recompute",
    "step_time_s", "tokens_per_s_per_gpu", "peak_mem_gib", "notes",
)  # fmt: skip
FRAMEWORK = "pytorch-fsdp"


@dataclass(frozen=True, slots=True)
class Ran:
    """What all rows of one table have in common."""

    model: Model
    gpu: str
    sequence_tokens: int
    zero_stage: int


def row_of(run: trained.TrainedRun, ran: Ran) -> Row:
    """What was run, and its median step. No column tells compiled runs, which are another software."""
    ranks, measured, model = run.settings.ranks, run.measured, ran.model
    batch = measured.tokens_per_step // ran.sequence_tokens
    own = ("layers", "hidden", "heads", "kv_heads", "head_dim", "ffn_hidden", "vocab")
    cells: dict[str, object] = {
        "id": run.name,
        "source": "own",
        "source_ref": "twofold measure train",
        "model": model.name,
        "params_total": measured.parameter_count,
        **{name: getattr(model, name) for name in own},
        "seq_len": ran.sequence_tokens,
        "gpu": ran.gpu,
        "gpus": ranks,
        "gpus_per_node": ranks,
        **dict.fromkeys(("tp", "pp", "cp", "ep"), 1),
        "dp": ranks,
        "zero_stage": ran.zero_stage,
        "micro_batch": run.settings.micro_batch,
        "global_batch_seqs": batch,
        "framework": FRAMEWORK,
        "precision": run.settings.precision,
        "recompute": run.settings.recompute,
        "step_time_s": measured.step_s_p50,
        "tokens_per_s_per_gpu": measured.tokens_per_step / measured.step_s_p50 / ranks,
        "peak_mem_gib": measured.peak_memory_bytes / 2**30,
        "notes": "step time is a median after warm-up; memory is of a whole process",
    }
    return {name: _cell(cells[name]) for name in COLUMNS}


def _cell(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def table_of(runs: Sequence[trained.TrainedRun], ran: Ran) -> list[list[str]]:
    """The header and a row of each eager run, as lines of a CSV file."""
    return lines_of([row_of(run, ran) for run in runs if run.settings.compute == "eager"])


def lines_of(rows: Sequence[Mapping[str, str]]) -> list[list[str]]:
    """The header and the rows, as lines of a CSV file."""
    return [list(COLUMNS), *([harmless(row[name]) for name in COLUMNS] for row in rows)]
