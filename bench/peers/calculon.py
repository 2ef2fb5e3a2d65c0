"""Training rows as Calculon's questions: dense transformers with two MLP matrices or their equal, no FSDP.

Rows are read as ours are (`twofold.measure.training_rows`), so both see the same layout, and where a row
leaves something open both take the fastest of its readings.
"""

from collections.abc import Mapping, Sequence

from bench.peers.ask import ask
from bench.peers.compare import Answer, sample
from twofold.catalog.catalog import Catalog
from twofold.catalog.types import Model
from twofold.core.errors import InputError, TwofoldError
from twofold.measure.training_rows import Entry, read_entries, row_model
from twofold.measure.truth import Row, text

SYSTEMS = {"A100-SXM4-80GB": "a100_80g", "H100-SXM5-80GB": "h100_80g_nvl8"}
RECOMPUTE = ("none", "attn_only", "full")  # in the order of training.Recompute
NODE_SIZE = 8  # of both systems
HALF = "training"
Question = dict[str, object]


def questions(row: Row, catalog: Catalog) -> list[Question]:
    """One question per reading of the row. Raises InputError with why Calculon cannot express it."""
    entries = read_entries(0, row, catalog)
    accelerator = entries[0].machine.accelerator
    if accelerator not in SYSTEMS:
        raise InputError(f"no system file for {accelerator}")
    if entries[0].machine.precision not in ("bf16", "fp16"):
        raise InputError(f"no mixed {entries[0].machine.precision}")
    model = row_model(row, catalog)
    if model.moe_layers or model.experts:
        raise InputError("no mixture of experts")
    if model.linear_layers or model.sliding_layers or model.mla_kv_rank:
        raise InputError("no such attention")
    if model.kv_heads not in (model.heads, 1):
        raise InputError("no grouped-query attention")
    found = [_question(row, entry, model) for entry in entries if entry.layout[1] == 1]
    if not found:
        raise InputError("no context parallelism")
    kept = [question for question in found if question is not None]
    if not kept:
        raise InputError("no sharding of gradients or weights (ZeRO-2, ZeRO-3, FSDP)")
    return kept


def _question(row: Row, entry: Entry, model: Model) -> Question | None:
    tp, _cp, _ep, pp, vpp, dp, stage, micro, mode, sequence_parallel = entry.layout
    if stage > 1:
        return None
    told = text(row, "overlap_notes")
    sequence = int(float(row["seq_len"]))
    # A gated MLP as an ungated one of the same weights and FLOPs.
    application = {
        "hidden": model.hidden,
        "feedforward": model.ffn_hidden * model.ffn_matrices // 2,
        "seq_size": sequence,
        "attn_heads": model.heads,
        "attn_size": model.head_dim,
        "num_blocks": model.layers,
    }
    execution = {
        "num_procs": tp * pp * dp,
        "tensor_par": tp,
        "pipeline_par": pp,
        "data_par": dp,
        "tensor_par_net": _network(tp),
        "pipeline_par_net": _network(tp * dp * pp),
        "data_par_net": _network(tp * dp),
        "batch_size": int(float(row["global_batch_seqs"])),
        "microbatch_size": micro,
        "datatype": "float16",
        "fused_activation": True,
        "attention_type": "multihead" if model.kv_heads == model.heads else "multiquery",
        "activation_recompute": RECOMPUTE[mode],
        "pipeline_interleaving": vpp,
        "optimizer_sharding": stage == 1 and dp > 1,
        "tensor_par_comm_type": "rs_ag" if sequence_parallel and tp > 1 else "ar",
        "tensor_par_overlap": "ring"
        if tp > 1 and ("async TP" in told or "TP comm overlap" in told)
        else "none",
        "seq_par_ag_redo": False,
        "data_par_overlap": dp > 1 and "overlapped DP" in told,
        "weight_offload": False,
        "activations_offload": False,
        "optimizer_offload": False,
        "training": True,
    }
    network = None if "network" in entry.assumptions else entry.machine.nic_bytes_per_s / 1e9
    if tp * pp * dp <= NODE_SIZE:
        network = None
    system = SYSTEMS[entry.machine.accelerator]
    return {"system": system, "network_gb_per_s": network, "application": application, "execution": execution}


def _network(rank_count: int) -> int:
    """The node's links or the fabric; ranks are numbered by tensor, then data, then pipeline."""
    return 0 if rank_count <= NODE_SIZE else 1


def predict(
    rows: Sequence[Row], catalog: Catalog, python: str, folder: str, most: int
) -> tuple[str, list[Answer]]:
    """Calculon's version and its answer to every row: asked of at most `most` rows a source."""
    answers: list[Answer] = ["not in the sample"] * len(rows)
    asked: dict[int, list[Question]] = {}
    for place, row in enumerate(rows):
        try:
            asked[place] = questions(row, catalog)
        except TwofoldError as error:
            answers[place] = error.message
    chosen = sample(rows, asked, most)
    version, told = ask(python, "ask_calculon.py", [folder], [q for place in chosen for q in asked[place]])
    for place in chosen:
        mine, told = told[: len(asked[place])], told[len(asked[place]) :]
        answers[place] = fastest(mine)
    return version, answers


def fastest(told: Sequence[Mapping[str, object]]) -> Answer:
    """The fastest of one row's readings, or why none was answered."""
    good = [each for each in told if "error" not in each]
    if not good:
        return str(told[0]["error"])
    best = min(good, key=lambda each: float(str(each["step_s"])))
    return {"Step time": float(str(best["step_s"])), "Peak memory": float(str(best["memory_gib"]))}
