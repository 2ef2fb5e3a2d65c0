"""From a row of training truth to what the model needs; what a row leaves open becomes candidates.

Only columns that a user could know before the run are read.
"""

import itertools
import re
from dataclasses import dataclass, replace
from typing import Any, get_args

from twofold.catalog.catalog import Catalog
from twofold.catalog.types import Accelerator, Model
from twofold.core.errors import InputError, UnknownNameError
from twofold.measure.truth import Row, count, framework_of, known_framework, number, signed_number, text
from twofold.training.job import Precision, TrainingJob, Workload
from twofold.training.layouts import RECOMPUTE, Recompute
from twofold.training.stack import software_family

PRECISIONS = get_args(Precision)
FABRICS = {
    "omni-path": "omnipath",
    "infiniband": "infiniband",
    "roce": "roce",
    "rdma": "roce",
    "efa": "efa",
    "tcpx": "tcpx",
    "ethernet": "ethernet",
    "ici": "ici",
}
INFINIBAND_BITS_PER_S = {"edr": 100e9, "hdr": 200e9, "ndr": 400e9, "xdr": 800e9}
NOT_FOR_COMPUTE = ("storage", "management", "pcie")  # networks that carry no gradients
OMNIPATH_NODE_BITS_PER_S = 400e9  # four 100 Gb/s ports a node, the usual build
USUAL_HEAD_DIM = 128
ADAPTERS = ("", "none", "lora")
USUAL_ADAPTER_RANK = 16


@dataclass(frozen=True, slots=True)
class Machine:
    """What rows are grouped by: one device, one network, one software."""

    accelerator: str
    family: str  # of the accelerator
    node_size: int
    nic_bytes_per_s: float
    fabric: str
    framework: str
    precision: str
    latent: bool  # multi-head latent attention runs other products
    moe: bool


@dataclass(frozen=True, slots=True)
class Entry:
    """One row under one reading of what it leaves open; `layout` is in the order of `Layouts`."""

    row: int
    work: Workload
    layout: tuple[int, ...]
    machine: Machine
    assumptions: tuple[str, ...]


def read_entries(index: int, row: Row, catalog: Catalog) -> list[Entry]:
    """The readings of one row: one where everything is stated."""
    accelerator = catalog.benchmark_accelerator(text(row, "gpu"))
    precision = text(row, "precision").lower() or "bf16"
    if precision not in PRECISIONS:
        raise InputError(f"unknown precision '{precision}'", hint="one of " + ", ".join(PRECISIONS))
    model, framework = row_model(row, catalog), framework_of(row)
    if software_family(framework, precision) == "other":
        known_framework(text(row, "framework"), catalog)
    assumed = {name for name in ("framework", "precision") if not text(row, name)}
    if number(row, "heads") is None and _known_model(row, catalog) is None:
        assumed.add("heads")
    sequence, batch = number(row, "seq_len"), number(row, "global_batch_seqs")
    if sequence is None or batch is None:
        column = "seq_len" if sequence is None else "global_batch_seqs"
        raise InputError(f"'{column}' is blank: a training step needs its length and its batch")
    machine, guessed = _machine(row, accelerator, catalog, framework, precision, model)
    adapter = text(row, "adapter").lower()
    if adapter not in ADAPTERS:
        raise InputError(f"unknown adapter '{adapter}'", hint="one of " + ", ".join(filter(None, ADAPTERS)))
    frozen = adapter == "lora"
    assumed |= {"adapter rank"} if frozen else set()
    job = TrainingJob(
        model,
        "lora" if frozen else "pretrain",
        round(sequence),
        round(batch),
        precision,  # type: ignore[arg-type]
        framework,
        lora_rank=USUAL_ADAPTER_RANK if frozen else 0,
    )
    work = job.workload
    layouts, missing = _layouts(row, job, machine.node_size)
    names = tuple(sorted(assumed | guessed | missing))
    return [Entry(index, work, layout, machine, names) for layout in layouts]


def row_model(row: Row, catalog: Catalog) -> Model:
    """The row's model: the catalogue's where its size agrees, else built from the row's own dimensions."""
    known, sizes = _known_model(row, catalog), ("layers", "hidden", "vocab")
    stated = {name: number(row, name) for name in (*sizes, "ffn_hidden")}
    whole = all(stated[name] is not None for name in sizes)
    if known is not None:
        agrees = all(stated[name] in (None, getattr(known, name)) for name in sizes)
        widths = (None, known.ffn_hidden, known.moe_ffn_hidden)
        if not whole or (agrees and stated["ffn_hidden"] in widths):
            return known
    elif not whole:
        raise UnknownNameError(
            f"model '{text(row, 'model')}' is not in the catalogue and its dimensions are not stated",
            hint="state layers, hidden and vocab",
        )
    return _stated_model(row, known)


def _known_model(row: Row, catalog: Catalog) -> Model | None:
    try:
        return catalog.benchmark_model(text(row, "model"))
    except UnknownNameError:
        return None


def _stated_model(row: Row, known: Model | None) -> Model:
    """A model from the row's dimensions; gating and tied tables are what the parameters say."""
    latent = known if known is not None and known.mla_kv_rank else None
    hidden, name = count(row, "hidden", 1), text(row, "model")
    heads = count(row, "heads", max(1, hidden // USUAL_HEAD_DIM))
    layers, experts = count(row, "layers", 1), round(number(row, "experts") or 0)
    ffn = count(row, "ffn_hidden", 4 * hidden)
    plain_layers = latent.layers - latent.moe_layers if latent and latent.moe_layers else 0
    sizes: dict[str, Any] = {
        "layers": layers,
        "hidden": hidden,
        "heads": heads,
        "kv_heads": count(row, "kv_heads", heads),
        "head_dim": count(row, "head_dim", hidden // heads),
        "vocab": count(row, "vocab", 32000),
        "softmax_attention_layers": layers,
        "ffn_hidden": (latent.ffn_hidden if latent else 0) if experts else ffn,
        "experts": experts,
        "experts_topk": count(row, "experts_topk", 1) if experts else 0,
        "moe_layers": max(0, layers - plain_layers) if experts else 0,
        "moe_ffn_hidden": ffn if experts else 0,
        "shared_ffn_hidden": latent.shared_ffn_hidden if latent and experts else 0,
        "arch": "moe" if experts else "dense",
    }
    names = {"name": name, "family": name, "attention": "gqa", "native_format": "bf16"}
    usual: dict[str, Any] = names | {"max_context_tokens": 0, "parameters": 0, "parameters_active": 0}
    options = []
    for matrices, tied in itertools.product((2, 3), (True, False)):
        own = sizes | {"ffn_matrices": matrices, "tied_embeddings": tied}
        options.append(replace(latent, **own) if latent else Model(**usual, **own))
    parameters = number(row, "params_total") or _described_parameters(options[-1])
    best = min(options, key=lambda option: abs(_described_parameters(option) - parameters))
    return replace(best, parameters=round(parameters), parameters_active=round(parameters))


def _described_parameters(model: Model) -> float:
    attention = model.hidden * model.head_dim * 2 * (model.heads + model.kv_heads)
    ffn = model.ffn_matrices * model.hidden * model.ffn_hidden * (model.layers - model.moe_layers)
    width = model.experts * model.moe_ffn_hidden + model.shared_ffn_hidden
    experts = model.ffn_matrices * model.hidden * width * model.moe_layers
    tables = (1 if model.tied_embeddings else 2) * model.vocab * model.hidden
    return float(model.layers * attention + ffn + experts + tables)


def _machine(
    row: Row, accelerator: Accelerator, catalog: Catalog, framework: str, precision: str, model: Model
) -> tuple[Machine, set[str]]:
    """Device, node, network and software; the network is read from its description or the usual node's."""
    nodes = catalog.nodes_with(accelerator.name)
    usual = nodes[0] if nodes else None
    node_size = count(row, "gpus_per_node", usual.accelerator_count if usual else 8)
    stated = text(row, "interconnect")
    nic, fabric = read_interconnect(stated, node_size)
    guessed = set()
    if nic is None:
        nic = usual.nic_bytes_per_s / usual.accelerator_count if usual else 25e9
        if count(row, "gpus", 1) > node_size:
            guessed.add("network")
    machine = Machine(
        accelerator=accelerator.name,
        family=accelerator.family,
        node_size=node_size,
        nic_bytes_per_s=nic,
        fabric=fabric or (usual.fabric if usual else "infiniband"),
        framework=framework,
        precision=precision,
        latent=model.mla_kv_rank > 0,
        moe=model.moe_layers > 0,
    )
    return machine, guessed


def read_interconnect(stated: str, node_size: int) -> tuple[float | None, str]:
    """Rate per accelerator in B/s and class of fabric from words such as `4x100 Gb/s RoCE per node`.

    Of several networks the fastest counts; one for storage or management alone does not. Several ports are
    those of a node, unless the words say `per GPU`.

    >>> read_interconnect("NVLink intra; 4x100 Gb/s RoCE per node", 8)
    (6250000000.0, 'roce')
    >>> read_interconnect("Storage: 2x 200 Gb/s Ethernet, Compute: 8x ConnectX-7 IB NDR 400 Gb/s", 8)
    (50000000000.0, 'infiniband')
    """
    found: list[tuple[float | None, str]] = []
    for part in re.split(r"[;,+]", stated):
        label, colon, _ = part.lower().partition(":")
        aside = bool(colon) and "compute" not in label and any(word in label for word in NOT_FOR_COMPUTE)
        if not aside and not part.strip().lower().startswith(("nvlink", "pcie")):
            found.append(_one_network(part, node_size))
    fabric = next((name for name in FABRICS.values() if name in {kind for _, kind in found}), "")
    return max(found, key=lambda network: network[0] or 0.0, default=(None, ""))[0], fabric


def _one_network(words: str, node_size: int) -> tuple[float | None, str]:
    """As `read_interconnect`, of one network's words."""
    told = words.lower()
    generation = next((word for word in INFINIBAND_BITS_PER_S if word in told), "")
    fabric = next(
        (name for word, name in FABRICS.items() if word in told), "infiniband" if generation else ""
    )
    ports = re.search(r"(\d+)\s*x", told)
    count = int(ports[1]) if ports else 1
    shared = "per node" in told or "node-to-node" in told or (count > 1 and "per gpu" not in told)
    rate = re.search(r"(\d+(?:\.\d+)?)\s*(gb/s)", told)
    if rate is not None:
        port = float(rate[1]) * 1e9 / (1 if "GB/s" in words else 8)
    elif fabric == "omnipath":
        return OMNIPATH_NODE_BITS_PER_S / 8 / node_size, fabric
    elif generation:
        port = INFINIBAND_BITS_PER_S[generation] / 8
    else:
        return None, fabric
    return port * count / (node_size if shared else 1), fabric


def _layouts(row: Row, job: TrainingJob, node_size: int) -> tuple[list[tuple[int, ...]], set[str]]:
    """Every reading of the row's layout, and the names of what it leaves open.

    Tensor and pipeline sizes are those stated, or what divides heads, layers and devices.
    """
    told = number(row, "gpus")
    if told is None:
        raise InputError("'gpus' is blank: how many accelerators take part?")
    gpus, model, family = round(told), job.model, software_family(job.framework, job.precision)
    names = ("tp", "pp", "vpp", "micro_batch")
    stated = {name: [count(row, name, 1)] for name in names if number(row, name) is not None}
    zero, parallel = signed_number(row, "zero_stage"), signed_number(row, "sp")
    stage = round(zero) if zero is not None else {"fsdp": 3, "megatron-legacy": 0}.get(family, 1)
    splits = parallel > 0 if parallel is not None else family != "megatron-legacy"
    mode = RECOMPUTE.get(text(row, "recompute"))
    cp, ep = count(row, "cp", 1), count(row, "ep", 1)
    readings: list[tuple[int, ...]] = []
    tps = stated.get("tp", [size for size in (1, 2, 4, 8) if size <= node_size])
    for tp, pp in itertools.product(tps, stated.get("pp", [1, 2, 4, 8, 16])):
        divides = gpus % (tp * pp) == 0 and model.heads % tp == 0 and pp <= model.layers
        if not divides and not {"tp", "pp"} <= stated.keys():
            continue
        dp = count(row, "dp", max(1, gpus // (tp * pp * cp)))
        share = max(1, job.global_batch_sequences // dp)
        micros = stated.get("micro_batch", [size for size in (1, 2, 4) if share % size == 0])
        deep = pp > 1 and family != "megatron-legacy"
        stages = [size for size in (1, 2, 4, 8) if size == 1 or (deep and model.layers % (pp * size) == 0)]
        modes = [mode] if mode is not None else [Recompute.NONE, Recompute.SELECTIVE, Recompute.FULL]
        for vpp, micro, each in itertools.product(stated.get("vpp", stages), micros, modes):
            readings.append((tp, cp, ep, pp, vpp, dp, stage, micro, int(each), int(tp > 1 and splits)))
    if not readings:
        raise InputError("tp, pp, cp and dp do not multiply to the stated 'gpus'")
    is_open = {
        "layout": not {"tp", "pp"} <= stated.keys(),
        "micro-batch": "micro_batch" not in stated,
        "recompute": mode is None,
        "zero": zero is None,
        "interleaving": "vpp" not in stated and count(row, "pp", 1) > 1,
    }
    return readings, {name for name, missing in is_open.items() if missing}
