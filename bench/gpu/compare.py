"""`python -m bench.gpu.compare`: what was measured beside what was frozen, as in `docs/reference/gpu.md`.

The rows go to `bench/gpu/rows.csv`, and as tables of the truth's schema to `training.csv`, `kernels_gemm.csv`
and `kernels_attention.csv` beside it. Nothing is fitted here.
"""

import csv
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bench.gpu import cases

HERE = Path(__file__).parent
KINDS = {
    "gemm": "products",
    "prefill": "attention, prompts",
    "decode": "attention, decoding",
    "pass": "passes",
}


@dataclass(frozen=True, slots=True)
class Row:
    """One figure, predicted and measured, in the same unit."""

    kind: str
    id: str
    unit: str
    predicted: float
    low: float
    high: float
    measured: float

    @property
    def is_inside(self) -> bool:
        """Whether the 80 % range held."""
        return self.low <= self.measured <= self.high

    @property
    def off(self) -> float:
        """Predicted over measured, less 1."""
        return self.predicted / self.measured - 1.0


def rows() -> list[Row]:
    """Every row of the one accelerator that was measured."""
    measured = json.loads((HERE / "measured.json").read_text("utf-8"))
    frozen = json.loads((HERE / "frozen.json").read_text("utf-8"))["accelerators"][measured["accelerator"]]
    return [
        *_kernels(frozen["kernels"], measured["kernels"]),
        *_steps(frozen["steps"], measured["steps"]),
        *_training(frozen["training"], measured["training"]),
        *_served(frozen["served"], _table(HERE / "served.csv")),
    ]


def _table(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _kernels(frozen: dict[str, Any], measured: dict[str, Any]) -> Iterator[Row]:
    for name, found in measured.items():
        if name in frozen:  # not the second kernels, `@flash`, which nobody predicted apart
            told, kind = frozen[name], KINDS[name.split("-")[0]]
            kind += ", fp8" if name.startswith("gemm-fp8") else ""
            ends = (told[end] * 1e6 for end in ("value", "low", "high"))
            yield Row(kind, name, "µs", *ends, found["value"] * 1e6)


def _steps(frozen: dict[str, Any], measured: dict[str, Any]) -> Iterator[Row]:
    for name, found in measured.items():
        kind = "prompt steps" if "prefill" in name else "decoding steps"
        ends = (frozen[name]["operators"][end] * 1e3 for end in ("value", "low", "high"))
        yield Row(kind, name, "ms", *ends, found["value"] * 1e3)


def _training(frozen: dict[str, Any], measured: dict[str, Any]) -> Iterator[Row]:
    for name, found in measured.items():
        kind = "training steps, compiled" if name.endswith("compiled") else "training steps, eager"
        told = [float(frozen[name][f"pred_step_time_s{end}"]) * 1e3 for end in ("", "_low", "_high")]
        yield Row(kind, name, "ms", *told, found["step_s"] * 1e3)
        held = [float(frozen[name][f"pred_peak_mem_gib{end}"]) for end in ("", "_low", "_high")]
        yield Row("training memory, reserved", name, "GiB", *held, found["reserved_gib"])


def _served(frozen: dict[str, Any], measured: Iterable[dict[str, str]]) -> Iterator[Row]:
    for found in measured:
        if found["concurrency"]:
            told = frozen[f"served-{found['concurrency']}"]
            for name, unit in (("tpot_p50_ms", "ms"), ("ttft_p50_ms", "ms"), ("output_tok_s", "tok/s")):
                ends = (float(told[f"pred_{name}{end}"]) for end in ("", "_low", "_high"))
                kind = f"transformers serve, {name.split('_')[0].replace('output', 'tok/s')}"
                yield Row(kind, found["id"], unit, *ends, float(found[name]))


def truth_training(measured: dict[str, Any]) -> list[dict[str, object]]:
    """The training steps in the columns of the truth's `training.csv`; memory is what was reserved."""
    by_id = {each.id: each for each in cases.TRAINING}
    found = []
    for name, row in measured["training"].items():
        case, (layers, hidden, heads, kv_heads, size, ffn, vocab, _) = by_id[name], _sizes(name)
        one = dict.fromkeys(("gpus", "dp", "tp", "pp", "cp", "vpp"), 1)
        found.append(
            {"id": f"own-{name}", "source": "own", "source_ref": "bench/gpu/measured.json", "tier": "A"}
            | {"model": case.model, "arch": "dense", "params_total": row["parameters"], "layers": layers}
            | {"hidden": hidden, "heads": heads, "kv_heads": kv_heads, "head_dim": size, "ffn_hidden": ffn}
            | {"vocab": vocab, "seq_len": case.tokens, "gpu": measured["accelerator"], **one}
            | {"framework": "PyTorch FSDP", "precision": "bf16", "zero_stage": 3, "sp": 0}
            | {"micro_batch": case.sequences, "global_batch_seqs": case.sequences}
            | {"recompute": case.recompute, "step_time_s": row["step_s"], "peak_mem_gib": row["reserved_gib"]}
            | {"notes": f"{'compiled' if case.compiled else 'eager'}; torch 2.11.0; {measured['date']}"}
        )
    return found


def _sizes(name: str) -> tuple[Any, ...]:
    return next(sizes for model, sizes in cases.MODELS.items() if name.startswith(model))


def truth_kernels(measured: dict[str, Any]) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    """Products and attention in the columns of the truth's kernel tables."""
    gemm, attention = [], []
    own = {"gpu": "h200_sxm", "framework": "torch", "framework_version": "2.11.0"}
    for name, row in measured["kernels"].items():
        kind, *words = name.partition("@")[0].split("-")
        timed = {"time_us": f"{row['value'] * 1e6:.6g}"}
        if kind == "gemm":
            m, n, k = words[1].split("x")
            dtype = {"bf16": "bfloat16"}.get(words[0], words[0])
            gemm.append(
                {**own, "dtype": dtype, "m": m, "n": n, "k": k, **timed, "kernel": "cublas", "flag": ""}
            )
        elif kind in ("prefill", "decode"):
            batch, tokens = words[0].split("x")
            sizes = dict(zip(("heads", "kv_heads", "head_dim"), words[1:], strict=True))
            what = {"phase": kind, "dtype": "bfloat16", "kv_dtype": "bfloat16", "batch": batch}
            kernel = {"window": 0, "kernel": "flash" if name.endswith("@flash") else "cudnn", "flag": ""}
            attention.append({**own, **what, "isl_or_kv_len": tokens, **sizes, **timed, **kernel})
    return gemm, attention


def _write(path: Path, found: list[dict[str, object]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(found[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(found)


def summary(found: list[Row]) -> list[str]:
    """One line of a table for each kind."""
    by_kind: dict[str, list[Row]] = {}
    for row in found:
        by_kind.setdefault(row.kind, []).append(row)
    lines = ["| kind | inside the range | median off | from | to |", "| --- | --: | --: | --: | --: |"]
    for kind, of_kind in by_kind.items():
        inside, offs = sum(row.is_inside for row in of_kind), [row.off for row in of_kind]
        off = f"{100 * median(map(abs, offs)):.0f} % | {100 * min(offs):+.0f} % | {100 * max(offs):+.0f} %"
        lines.append(f"| {kind} | {inside} of {len(of_kind)} | {off} |")
    return lines


def listed(found: Iterable[Row]) -> list[str]:
    """Every row of a table."""
    lines = ["| case | predicted | 80 % range | measured | off |", "| --- | --: | --: | --: | --: |"]
    for row in found:
        ends, mark = f"{row.low:.4g} – {row.high:.4g}", "" if row.is_inside else " **out**"
        told = f"{row.predicted:.4g} {row.unit} | {ends} | {row.measured:.4g} {row.unit}"
        lines.append(f"| {row.id} | {told} | {100 * row.off:+.0f} %{mark} |")
    return lines


def main() -> None:
    """Print the tables, and write the rows."""
    found = rows()
    with (HERE / "rows.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("kind", "id", "unit", "predicted", "low", "high", "measured"))
        for row in found:
            numbers = (f"{each:.6g}" for each in (row.predicted, row.low, row.high, row.measured))
            writer.writerow((row.kind, row.id, row.unit, *numbers))
    measured = json.loads((HERE / "measured.json").read_text("utf-8"))
    gemm, attention = truth_kernels(measured)
    _write(HERE / "training.csv", truth_training(measured))
    _write(HERE / "kernels_gemm.csv", gemm)
    _write(HERE / "kernels_attention.csv", attention)
    print("\n".join(summary(found)))
    for start in ("training", "prompt steps", "decoding steps", "transformers"):
        print(f"\n{start}\n" + "\n".join(listed(row for row in found if row.kind.startswith(start))))


if __name__ == "__main__":
    main()
