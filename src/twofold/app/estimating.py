"""`estimate`: one question in words becomes typed data, is answered, and shows itself."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from twofold.answer import quick_single
from twofold.answer.question import Given, Variation, given
from twofold.answer.quick_serve import ServingQuestion, read_rate_bytes_per_s
from twofold.answer.serve_answer import ServingEstimate, ServingTables, estimate_serving
from twofold.answer.training_estimate import TrainingEstimate, TrainingQuestion, estimate_training
from twofold.app.local_tables import local_tables
from twofold.app.sources import calibration_file, device_folder, starts_file
from twofold.app.words import LARGEST, counts_in, model_in, not_more_than, pairs_in, sequences_in, sizes_in
from twofold.catalog.catalog import Catalog, load_catalog
from twofold.contracts.spec.training_run import Precision
from twofold.core.errors import ValueRefusedError
from twofold.core.quantity import Dimension, parse_quantity
from twofold.inference.replica import CacheOptions
from twofold.perf.constants import Constants
from twofold.perf.software import DEFAULT_ENGINE, DEFAULT_FRAMEWORK, engine_called, engine_software
from twofold.report.answers import ShownData
from twofold.report.estimates import estimate_lines
from twofold.training.job import TrainingJob
from twofold.training.layouts import RECOMPUTE

THINNEST = 1000  # oversubscription of a fabric


@dataclass(frozen=True, slots=True)
class Machines:
    """Machines in words, and what is other than the catalogue says of them."""

    on: str  # 64x8xH100-SXM, 4xH200, 8xp5.48xlarge
    scale: str = ""  # compute=1.2,link=0.5
    oversubscription: float = 1.0
    fabric: str = ""
    nic: str = ""  # per accelerator: 400 Gb/s
    virtual_overhead: str = ""  # 3 %
    price: str = ""  # of one accelerator: $2.10/h
    catalog: Path | None = None  # a folder with rows of yours
    device: Path | None = None  # the folder of a measured device; left out: the one measured in this folder


def estimate_train(
    model: str,
    on: Machines | str,
    *,
    batch: str,
    sequence: str = "8192 tok",
    precision: Precision = "bf16",
    kind: Literal["pretrain", "finetune", "lora"] = "pretrain",
    lora_rank: int = 16,
    layout: str = "",
    recompute: Literal["none", "light", "selective", "mlp", "full"] | None = None,
    zero: int | None = None,
    tokens: str = "",
    layouts: int = 0,
    write_within: str = "60 s",
    stall: str = "",
    headroom: str = "",
    framework: str = DEFAULT_FRAMEWORK,
) -> ShownData[TrainingEstimate]:
    """One training step on given machines, and with `tokens` the whole run.

    Raises InputError for words that cannot be read, InfeasibleError when no layout fits.
    """
    asked = _asked(on)
    sequence_tokens = int(not_more_than(LARGEST, parse_quantity(sequence, Dimension.TOKENS), sequence))
    stated = sizes_in(layout)
    stated |= {"recompute": int(RECOMPUTE[recompute])} if recompute else {}
    stated |= {"zero_stage": zero} if zero is not None else {}
    question = TrainingQuestion(
        job=TrainingJob(
            model=model_in(model, asked.catalog),
            kind=kind,
            sequence_tokens=sequence_tokens,
            global_batch_sequences=sequences_in(batch, sequence_tokens),
            precision=precision,
            framework=asked.catalog.framework(framework),
            lora_rank=lora_rank if kind == "lora" else 0,
        ),
        machines=asked.given,
        stated=stated,
        tokens=_amount(tokens, Dimension.TOKENS, "Gtok") if tokens else None,
        write_within_s=_amount(write_within, Dimension.TIME),
        stall_s=_amount(stall, Dimension.TIME) if stall else None,
        headroom={name: parse_quantity(text, Dimension.FRACTION) for name, text in pairs_in(headroom)},
        ranked=layouts,
    )
    answer = estimate_training(question, asked.constants)
    return ShownData(answer, tuple(estimate_lines(answer)))


def search_layouts(
    model: str,
    on: str,
    *,
    batch: str,
    sequence: str = "8192 tok",
    precision: Precision = "bf16",
    framework: str = DEFAULT_FRAMEWORK,
    count: int = 20,
) -> ShownData[TrainingEstimate]:
    """The fastest `count` of all valid layouts of one training step, ranked; `data.layouts` holds them.

    Raises InputError for words that cannot be read, InfeasibleError when no layout fits.
    """
    return estimate_train(
        model, on, batch=batch, sequence=sequence, precision=precision, framework=framework, layouts=count
    )


def estimate_serve(
    model: str,
    on: Machines | str,
    *,
    input_tokens: str,
    output_tokens: str,
    concurrency: int | None = None,
    rate: str = "",
    weights: str = "",
    kv: str = "",
    tp: int | None = None,
    pp: int | None = None,
    ep: int | None = None,
    dp: int | None = None,
    engine: str = DEFAULT_ENGINE,
    chunk: int = 8192,
    max_batch: int = 1024,
    prefix: str = "",
    offload: str = "",
    load_rate: str = "",
    tables: frozenset[Literal["formats", "layouts", "switches"]] = frozenset(),
    replicas: str = "",
) -> ShownData[ServingEstimate]:
    """One copy of a model on given machines under a load.

    `engine` may carry its version, and that its steps run as two halves: `vllm 0.12`, `sglang
    two-batch-overlap`; `weights` left out are in the format they were published in,
    `kv` in the format that the engine takes for such a checkpoint.
    Raises InputError for words that cannot be read, InfeasibleError when the model does not fit or the rate
    saturates it.
    """
    asked = _asked(on)
    name, _, version = engine.replace("==", " ").partition(" ")
    engine_name = engine_called(name, asked.catalog)
    shape = model_in(model, asked.catalog)
    weights = weights or shape.served_format
    sizes = {"tp": tp, "pp": pp, "ep": ep, "dp": dp}
    question = ServingQuestion(
        model=shape,
        machines=asked.given,
        input_tokens=_length(input_tokens),
        output_tokens=_length(output_tokens),
        concurrency=concurrency,
        rate_per_s=_amount(rate, Dimension.RATE) if rate else None,
        weights_format=weights,
        kv_format=kv or engine_software(engine_name).cache_format(weights, shape.kv_format),
        engine_name=engine_name,
        engine_version=version.strip() or engine_software(engine_name).newest_release,
        stated={name: size for name, size in sizes.items() if size is not None},
        chunk_tokens=chunk,
        max_batch=max_batch,
        cache=CacheOptions(
            shared_prefix_fraction=_prefix_fraction(prefix) if prefix else 0.0,
            offload_bytes=parse_quantity(offload, Dimension.BYTES) if offload else 0.0,
        ),
        kv_stated=bool(kv),
        load_bytes_per_s=(
            _amount(load_rate, Dimension.BANDWIDTH) if load_rate else read_rate_bytes_per_s(asked.catalog)
        ),
    )
    wanted = ServingTables(frozenset(tables), counts_in(replicas))
    answer = estimate_serving(question, asked.constants, wanted)
    return ShownData(answer, tuple(estimate_lines(answer)))


def estimate_collective_of(
    operation: str, on: Machines | str, *, size: str, ranks: int | None = None, jitter: str = ""
) -> ShownData[quick_single.CollectiveEstimate]:
    """Seconds of one collective among consecutive accelerators, idle and with jitter."""
    asked = _asked(on)
    size_bytes = _amount(size, Dimension.BYTES)
    machines, spread = asked.given, parse_quantity(jitter, Dimension.FRACTION) if jitter else None
    answer = quick_single.estimate_collective(operation, size_bytes, machines, asked.constants, ranks, spread)
    return ShownData(answer, tuple(estimate_lines(answer)))


def estimate_compute_of(
    on: Machines | str, *, duration: str, mfu: str = "40 %", spend: str = "", model: str = ""
) -> ShownData[quick_single.ComputeEstimate]:
    """FLOPs of a fleet in a time at a utilisation, and the price at which a spend pays for it."""
    asked = _asked(on)
    answer = quick_single.estimate_compute(
        asked.given,
        _amount(duration, Dimension.TIME, "d"),
        _utilisation(mfu),
        parse_quantity(spend, Dimension.MONEY, "M$") if spend else None,
        model_in(model, asked.catalog) if model else None,
    )
    return ShownData(answer, tuple(estimate_lines(answer)))


def estimate_roofline_of(
    model: str, on: Machines | str, *, weights: str = ""
) -> ShownData[quick_single.RooflineEstimate]:
    """Where training, prefill and decode of a model lie under a device's roofline."""
    asked = _asked(on)
    shape = model_in(model, asked.catalog)
    answer = quick_single.estimate_roofline(shape, asked.given, weights or shape.served_format)
    return ShownData(answer, tuple(estimate_lines(answer)))


class estimate:  # in lower case: `twofold.estimate.train(…)` reads as the command does
    """The five questions, each asked on machines in words, or on `Machines` where parts are varied."""

    train = staticmethod(estimate_train)
    serve = staticmethod(estimate_serve)
    collective = staticmethod(estimate_collective_of)
    compute = staticmethod(estimate_compute_of)
    roofline = staticmethod(estimate_roofline_of)
    Machines = Machines


@dataclass(frozen=True, slots=True)
class _Asked:
    """Machines in words with the tables that they are looked up in."""

    machines: Machines
    catalog: Catalog
    constants: Constants

    @property
    def given(self) -> Given:
        machines = self.machines
        if not 1 <= machines.oversubscription <= THINNEST:
            what = f"an oversubscription of {machines.oversubscription:g} is not within 1 and {THINNEST:,}"
            raise ValueRefusedError(what, hint="write 4 for 4:1")
        words: dict[str, Any] = {}
        if machines.nic:
            words["nic_bytes_per_s"] = _amount(machines.nic, Dimension.BANDWIDTH, "Gb/s")
        if machines.price:
            words["price_usd_per_h"] = parse_quantity(machines.price, Dimension.MONEY_PER_HOUR)
        if machines.virtual_overhead:
            words["virtual_overhead_fraction"] = parse_quantity(machines.virtual_overhead, Dimension.FRACTION)
        scale = {name: _factor(name, text) for name, text in pairs_in(machines.scale)}
        variation = Variation(scale, machines.oversubscription, machines.fabric, **words)
        return given(machines.on, self.catalog, self.constants, variation)


def _asked(on: Machines | str) -> _Asked:
    """Machines in words alone are those of the catalogue, with a device measured in this folder."""
    machines = Machines(on) if isinstance(on, str) else on
    here = Path.cwd()
    device = machines.device or device_folder(here)
    catalog = load_catalog(device, machines.catalog)
    constants = local_tables(device, calibration_file(here), None, starts_file(here), catalog).constants
    return _Asked(machines, catalog, constants)


def _factor(name: str, text: str) -> float:
    with suppress(ValueError):
        if 1e-3 <= (factor := float(text)) <= 1e3:
            return factor
    raise ValueRefusedError(f"`{name}={text}` scales by no sensible factor", hint=f"write `{name}=0.5`")


def _length(text: str) -> float:
    """Tokens of a request. A bare number is one: nothing else is counted here."""
    counted = text.isascii() and text.isdigit() and len(text) < 20 and int(text)
    return not_more_than(LARGEST, float(text), text) if counted else _amount(text, Dimension.TOKENS)


def _amount(text: str, dimension: Dimension, suggest: str = "") -> float:
    """What is more than nothing."""
    value = parse_quantity(text, dimension, suggest)
    if value <= 0:
        raise ValueRefusedError(f"`{text}` is zero", hint="write more than zero")
    return not_more_than(LARGEST, value, text)


def _utilisation(text: str) -> float:
    share = _amount(text, Dimension.FRACTION)
    if share > 1:
        raise ValueRefusedError(f"an MFU of `{text}` is more than the peak", hint="write `40 %`")
    return share


def _prefix_fraction(text: str) -> float:
    share = parse_quantity(text, Dimension.FRACTION)
    if share >= 1:
        raise ValueRefusedError(f"`{text}` leaves nothing to compute", hint="write less than 100 %")
    return share
