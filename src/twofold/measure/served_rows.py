"""Measured loads as rows of a truth table, in the columns that `predict` and `calibrate` read."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from twofold.catalog.catalog import Catalog
from twofold.catalog.model_config import model_called
from twofold.contracts.results import served
from twofold.core.tables import harmless
from twofold.measure.inference_rows import known_format
from twofold.measure.truth import Row
from twofold.perf.software import engine_called

COLUMNS = (
    "id", "source", "source_ref", "tier", "model", "gpu", "gpus_total", "framework", "framework_version",
    "precision_weights", "tp", "mode", "isl_mean", "osl_mean", "isl_dist", "concurrency", "request_rate_rps",
    "ttft_p50_ms", "ttft_mean_ms", "ttft_p99_ms", "tpot_p50_ms", "tpot_mean_ms", "tpot_p99_ms", "e2e_p50_ms",
    "e2e_p99_ms", "output_tok_s", "output_tok_s_per_gpu", "total_tok_s", "tok_s_per_user", "requests_per_s",
    "joules_per_token", "mem_gib", "notes",
)  # fmt: skip
AT_ONCE = ("closed", "burst")  # kinds that so many requests at once say; the others a rate


@dataclass(frozen=True, slots=True)
class RunOn:
    """What a load cannot tell of what it loaded; empty is not told."""

    model: str = ""  # of the catalogue, or the path of a config.json
    gpu: str = ""
    gpu_count: int | None = None
    tensor_parallel: int | None = None
    engine: str = ""
    engine_version: str = ""
    weights_format: str = ""

    def known(self, catalog: Catalog) -> "RunOn":
        """The same, with the whole path of a model of one's own: rows are read from other folders.

        Raises UnknownNameError for a name that no row could be predicted by, ModelConfigError.
        """
        config = model_called(self.model, catalog)[1] if self.model else None
        if self.gpu:
            catalog.benchmark_accelerator(self.gpu)
        if self.engine:
            engine_called(self.engine, catalog)
        known_format(self.weights_format)
        return replace(self, model=str(config.resolve())) if config else self

    def name_of(self, model: str) -> str:
        """What its rows are called by: the catalogue's name, else the service's."""
        return model if Path(self.model).is_absolute() else self.model or model


def rows_of(page: served.ServedPage, ran_on: RunOn) -> list[Row]:
    """One row per load in which anything finished. Times in milliseconds, as the table's columns say."""
    return [_row(page, load, ran_on) for load in page.loads if load.finished != 0]


def _row(page: served.ServedPage, load: served.ServedLoad, ran_on: RunOn) -> Row:
    gpus = ran_on.gpu_count or ran_on.tensor_parallel
    outputs, inputs = load.output_tokens, load.input_tokens
    tokens_per_s = load.output_tokens_per_s
    total = tokens_per_s * (1 + inputs / outputs) if tokens_per_s and inputs and outputs else None
    tpot_s = load.tpot.mean_s if load.tpot else None
    cells: dict[str, object] = {
        "id": f"{re.sub(r'[^a-z0-9.]+', '-', ran_on.name_of(page.model).lower()).strip('-')}-{load.name}",
        "source": "own",
        "source_ref": page.service,
        "tier": "C" if load.is_limited else "",  # context alone: no machine was measured
        "model": ran_on.model or page.model,
        "gpu": ran_on.gpu,
        "gpus_total": gpus,
        "framework": ran_on.engine,
        "framework_version": ran_on.engine_version,
        "precision_weights": ran_on.weights_format,
        "tp": ran_on.tensor_parallel or gpus,
        "mode": "burst" if load.kind == "burst" else "online",
        "isl_mean": inputs,
        "osl_mean": outputs,
        "isl_dist": load.lengths,
        "concurrency": load.concurrency if load.kind in AT_ONCE else None,
        "request_rate_rps": None if load.kind in AT_ONCE else load.rate_per_s,
        **_latency_cells("ttft", load.ttft),
        **_latency_cells("tpot", load.tpot),
        **{name: cell for name, cell in _latency_cells("e2e", load.e2e).items() if "mean" not in name},
        "output_tok_s": tokens_per_s,
        "output_tok_s_per_gpu": tokens_per_s / gpus if tokens_per_s and gpus else None,
        "total_tok_s": total,
        "tok_s_per_user": 1.0 / tpot_s if tpot_s else None,
        "requests_per_s": load.requests_per_s,
        "joules_per_token": load.joules_per_token,
        "mem_gib": load.memory_peak_bytes / 2**30 if load.memory_peak_bytes else None,
        "notes": _notes(load),
    }
    return {name: _cell(cells[name]) for name in COLUMNS}


def _latency_cells(name: str, latency: served.Latency | None) -> dict[str, object]:
    told = latency or served.Latency()
    in_s = {
        "p50": told.p50_s.value if told.p50_s else None,
        "mean": told.mean_s,
        "p99": told.p99_s.value if told.p99_s else None,
    }
    return {f"{name}_{what}_ms": None if value is None else 1e3 * value for what, value in in_s.items()}


def _notes(load: served.ServedLoad) -> str:
    lost = "; ".join(f"{count} × {reason}" for reason, count in load.reasons)
    sent = f"{load.finished} of {load.sent} finished" if load.sent is not None else ""
    return "; ".join(part for part in (load.kind if load.kind != "closed" else "", sent, lost) if part)


def _cell(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


SERVICE_COLUMNS = (
    "batch_size", "service_s", "rate_per_s", "e2e_p50_s", "e2e_p95_s", "e2e_p99_s", "unit",
    "units_per_request", "note",
)  # fmt: skip


def service_table_of(page: served.ServedPage, carried: Sequence[served.ServedLoad]) -> list[list[str]]:
    """Loads as rows of a measured service, which a spec plans by `model: {measured: FILE}`.

    A closed loop of c clients is a batch of c that takes c / (requests/s), by Little's law: the server has
    all of them at any time. An open load that was carried is a rate with its quantiles.
    """
    rows = []
    for load in carried:
        cells: dict[str, object] = {
            "unit": page.unit,
            "units_per_request": page.units_per_request,
            "note": load.name,
        }
        e2e = load.e2e
        if load.kind == "closed" and load.concurrency and load.requests_per_s:
            cells |= {
                "batch_size": int(load.concurrency),
                "service_s": load.concurrency / load.requests_per_s,
            }
        elif load.kind != "closed" and load.sent and load.duration_s and e2e and e2e.p50_s:
            assert e2e.p95_s and e2e.p99_s
            told = e2e.p50_s.value, e2e.p95_s.value, e2e.p99_s.value
            cells |= dict(zip(SERVICE_COLUMNS[2:6], (load.sent / load.duration_s, *told), strict=True))
        else:
            continue
        rows.append([harmless(_cell(cells.get(name))) for name in SERVICE_COLUMNS])
    return [list(SERVICE_COLUMNS), *rows]


def table_of(rows: Sequence[Row]) -> list[list[str]]:
    """The header and the rows, as lines of a CSV file."""
    return [list(COLUMNS), *([harmless(row[name]) for name in COLUMNS] for row in rows)]
