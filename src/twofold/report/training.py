"""The TRAINING block of the one-screen plan, and the pieces of text that both halves share."""

from collections.abc import Sequence
from types import MappingProxyType

from twofold.answer.training_estimate import TrainingEstimate
from twofold.contracts.results import training
from twofold.contracts.results.parts import Bound, Machine, Part, PriceUsed
from twofold.contracts.results.serving import ServicePlan
from twofold.contracts.results.training import TrainingPlan
from twofold.core.display import format_bytes, format_memory, format_seconds, format_si, format_usd
from twofold.core.estimate import Estimate
from twofold.report.figures import apportioned, chance, hours_unit, percent, ranged, shares, summed
from twofold.report.lines import DOT, both_ends, field, heading

GIB = 2.0**30
SHOWN_BOUNDS = 3
LEAST_GAIN_FRACTION = 0.005
RARE_COUNT = 0.05  # interruptions of a run
# What 20 % more of a resource is called, after its name in `Bound`.
MORE_OF = MappingProxyType(
    {
        "compute": "FLOP/s",
        "memory bandwidth": "memory bandwidth",
        "memory capacity": "memory",
        "link": "scale-up bandwidth",
        "fabric": "bandwidth between nodes",
        "host": "host speed",
    }
)


def training_lines(run: TrainingPlan, asked: float | None = None, own_usd: float | None = None) -> list[str]:
    """One training run: what to rent for how long, and how it runs there."""
    machines, release_s = machine_text(run.machine), run.release_after_s
    rented = f"on {machines} for {format_seconds(run.run.total_s.value)}"
    if release_s is not None:
        rented = f"rent {machines} for {format_seconds(release_s)}, then release"
    exposed = run.communication_exposed_fraction
    parts = shares([(part.name, part.value.value) for part in run.step_parts])
    return [
        *both_ends(f"TRAINING  {run.name}: {rented}", cost_text(run.cost_usd, own_usd=own_usd)),
        *_layout_lines(run),
        *field(
            "step",
            f"{ranged(run.step_s)} each",
            f"{run.run.steps:,.0f} steps",
            f"MFU {ranged(run.mfu_fraction)}" if run.mfu_fraction else "",
            "" if exposed is None else f"exposed communication {percent(exposed)}",
        ),
        *field("", *(share for share in parts if not share.endswith(" 0 %"))),
        *memory_lines(run),
        *field("run", *_run_pieces(run, asked), separator="; "),
        *field("failures", *_failure_pieces(run.run)),
        *field("price", *price_pieces(run.machine.price, own_usd)),
        *field("bound by", *bound_pieces(run.bounds)),
    ]


def _layout_lines(run: TrainingPlan) -> list[str]:
    """How the run is split and on what software; or, where steps were measured, on how many accelerators."""
    if run.layout:
        return field("layout", *run.layout.text.split(DOT), run.precision or "", run.framework or "")
    counts = [f"{point.accelerator_count:,}" for point in run.scaling]
    sizes = f"{', '.join(counts[:-1])} and {counts[-1]}" if len(counts) > 1 else "".join(counts)
    batch = f"batch of {run.batch_samples:,}" if run.batch_samples else ""
    return field("measured", f"rows of {run.model}", f"{sizes} accelerators", batch)


def cost_text(cost: Estimate | None, unit: str = "USD", own_usd: float | None = None) -> str:
    """What is rented by its rent, machines of one's own by what they take."""
    if cost is None and own_usd is not None:
        return f"{format_usd(own_usd)}{unit.removeprefix('USD')} for power, your own"
    return ranged(cost, unit) if cost else "no price"


def machine_text(machine: Machine) -> str:
    """`64 × 8 H100-SXM5-80GB`: nodes × accelerators of each."""
    nodes = f"{machine.node_count:,} × " if machine.node_count > 1 else ""
    return f"{nodes}{machine.accelerators_per_node} {machine.accelerator}"


def memory_lines(used: TrainingPlan | ServicePlan | TrainingEstimate) -> list[str]:
    """The memory of one device, and its parts, which add up; nothing where it was not measured."""
    if not used.memory_bytes:
        return []
    capacity = format_memory(used.memory_capacity_bytes)
    whole = f"{ranged(used.memory_bytes, 'memory B')} of {capacity} per device"
    return field("memory", whole, *memory_texts(used.memory_parts))


def memory_texts(parts: Sequence[Part]) -> list[str]:
    """Each part in GiB, which add up."""
    texts = apportioned([part.value.value / GIB for part in parts], 1)
    return [f"{part.name} {text}" for part, text in zip(parts, texts, strict=True)]


def price_pieces(price: PriceUsed | None, own_usd: float | None = None) -> list[str]:
    """Which row of the catalogue the cost was made with: what it buys, where, on which terms."""
    if price is None:
        if own_usd is not None:
            return ["your own: no rent; energy and demand charge as the bill has them"]
        return ["no price: this part is planned in accelerator-hours"]
    offer = " ".join(filter(None, (price.provider, price.instance)))
    where = f" in {price.region}" if price.region and price.region != "all" else ""
    terms = [price.term.replace("_", " "), f"listed {price.date}" if price.date else ""]
    each = f"{ranged(price.usd_per_accelerator_h, 'USD/h')} each"
    return list(filter(None, (each, f"{offer}{where}", ", ".join(filter(None, terms)))))


def bound_pieces(bounds: Sequence[Bound]) -> list[str]:
    """`compute: 20 % more FLOP/s gains 15 %`, then what the next resources would gain."""
    gains = [
        f"20 % more {MORE_OF.get(bound.resource, bound.resource)} gains {percent(bound.gain_fraction)}"
        for place, bound in enumerate(bounds[:SHOWN_BOUNDS])
        if place == 0 or bound.gain_fraction >= LEAST_GAIN_FRACTION
    ]
    return [f"{bounds[0].resource}: {gains[0]}", *gains[1:]] if gains else []


def _run_pieces(plan: TrainingPlan, asked: float | None) -> list[str]:
    """From compute to the accelerator-hours that are paid, each sum with its terms; and the deadline."""
    run, deadline = plan.run, ""
    headroom = " + ".join(f"{percent(part.value.value)} {part.name}" for part in run.headroom)
    if plan.deadline_s is not None:
        kept = chance(run.ends_s.value <= plan.deadline_s, run.deadline_holds_probability, asked)
        deadline = f"deadline {format_seconds(plan.deadline_s)} {kept}"
    return [
        wall_text(run),
        f"with headroom {headroom or 'none'} = {ranged(run.total_s)}",
        ranged(run.accelerator_h, hours_unit(plan.machine.accelerator)),
        f"done in {ranged(run.done_s)}: {plan.calendar}" if run.done_s else "",
        deadline,
    ]


def delivery_pieces(run: TrainingPlan, buys: training.Delivery) -> list[tuple[str, str]]:
    """The hours of a run, the loss and the day that they buy: each a label, and a text that stands alone."""
    target, met, needed = buys.loss_target_nats, buys.loss_target_met, buys.target_tokens
    asked = "no target"
    if target is not None:
        asked = f"target {target:g}" if met is None else f"target {target:g} {chance(met, None)}"
        reached = f"reached at {ranged(needed)}" if needed else "not reached by any number of tokens"
        asked += "" if met is None else f", {reached}"
    ends = f"done {format_seconds(run.run.ends_s.value)} after its start"
    if buys.ends_on and buys.ends_by:
        by = "" if buys.ends_by == buys.ends_on else f", by {buys.ends_by} at the end of its range"
        ends = f"done on {buys.ends_on}{by}"
    return [
        ("accelerator-hours", ranged(run.run.accelerator_h, hours_unit(run.machine.accelerator))),
        ("expected loss", f"expected loss {ranged(buys.loss)}" if buys.loss else "no loss predicted"),
        ("target", asked),
        ("finish date", ends),
    ]


def wall_text(run: training.RunTotals) -> str:
    """Compute, checkpoints and failures, which add up."""
    parts = {"compute": run.compute_s, "checkpoints": run.checkpoint_s, "failures": run.failure_s}
    return summed([(name, part.value) for name, part in parts.items()], run.wall_s)


def _failure_pieces(run: training.Run) -> list[str]:
    """How many, and the size and cadence of checkpoints; what was not measured is not said."""
    saved, rare = run.checkpoints, run.interruptions.high < RARE_COUNT
    every, pause = f"every {ranged(saved.interval_s)}", f"written in {format_seconds(saved.write_s)}"
    if saved.size_bytes is None or saved.write_bytes_per_s is None:
        pieces = [f"checkpoint {every}", pause, "its size was not measured"]
    else:
        rate = format_si(saved.write_bytes_per_s, "B/s")
        pieces = [f"checkpoint of {format_bytes(saved.size_bytes)} {every}", f"{pause} at {rate}"]
    if saved.pause_s is not None and saved.pause_s < saved.write_s:
        pieces.append(f"training stops {format_seconds(saved.pause_s)} of it")
    failures = "none expected" if rare else ranged(run.interruptions, "interruptions")
    return [failures, f"goodput {ranged(run.goodput_fraction)}", *pieces]


def model_text(name: str, parameters: int) -> str:
    """`llama-3.1-70b · 70.6 B parameters`."""
    size = f"{parameters / 1e9:,.1f} B" if parameters >= 1e9 else f"{parameters / 1e6:,.0f} M"
    return f"{name}{DOT}{size} parameters"


def note_lines(warnings: tuple[str, ...]) -> list[str]:
    """What to know beside the figures, one note per line."""
    return [line for at, note in enumerate(warnings) for line in heading("" if at else "NOTE", note)]
