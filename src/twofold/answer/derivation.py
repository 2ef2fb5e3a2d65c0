"""The pieces of a derivation: other paths of the plan, and leaves that name where they were read."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from twofold.answer.calibrated import FACTOR, SPREAD, factors_in
from twofold.answer.offers import Offer
from twofold.answer.paths import is_estimate, leaves, unit_of
from twofold.catalog.capacity import row_of
from twofold.catalog.types import Accelerator, Model, Region
from twofold.contracts.results.parts import PriceUsed
from twofold.contracts.results.plan import Derivation, Input
from twofold.core import record
from twofold.core.data import from_data, to_data
from twofold.core.display import format_estimate, format_si
from twofold.core.estimate import Estimate, Source
from twofold.perf.constants import ConstantRow, Constants
from twofold.perf.device import SAME_KERNELS, read_from
from twofold.perf.known import load_known
from twofold.perf.types import one

SPEC = "spec "  # how the reference of what a spec says begins
Known = Mapping[str, Input | Sequence[Input]]


@dataclass(frozen=True, slots=True)
class Leaves:
    """Makes leaves of one run or service: its constants and the scope in which they are read."""

    constants: Constants
    scope: tuple[tuple[str, str], ...]

    def constant(self, name: str, label: str = "", **more: str) -> Input:
        """A fitted constant by its narrowest row: value, range, and the rows it rests on."""
        row = narrowest(self.constants, name, {**dict(self.scope), **more})
        if row is None:
            return Input(label or _words(name), "no row", "", Source.ASSUMED.value, f"constants.csv {name}")
        unit = "" if row.unit in ("ratio", "count", "1") else row.unit
        shown, low, high = (format_si(value, unit) for value in (row.value, row.low, row.high))
        rows = f", {row.rows} rows" if row.rows else ""
        where = f" {row.scope}" if row.scope else ""
        reference = row.note if row.fitted_by == "calibration" else f"constants.csv {name}{where}{rows}"
        text = f"{shown} [{low}–{high}]" if row.low < row.high else shown
        return Input(label or _words(name), text, "", row.source.value, reference)

    def unknown(self, factor: str) -> Input:
        """The range of one of the named unknowns."""
        scoped = Leaves(self.constants, (("factor", factor),))
        return scoped.constant("uncertainty_factor", f"spread of {factor}")

    def moved(self, name: str, offer: Offer) -> tuple[Input, ...]:
        """What a number of hardware or software is read from, by its name under `moved`."""
        part, fmt = offer.accelerator, name.rpartition(".")[2]
        more = {"format": SAME_KERNELS.get(fmt, fmt)} if "." in name else {}
        found = []
        for each in read_from(name, part):
            if each == "nic":
                known, node = offer.node.confidence != "assumed", offer.node.name
                where = f"nodes.csv {node} nic" if known else f"assumed for {node}"
                rate, source = (
                    format_si(offer.nic_bytes_per_s, "B/s"),
                    Source.VENDOR if known else Source.ASSUMED,
                )
                found.append(Input("NIC per accelerator", rate, "", source.value, where))
            elif hasattr(part, each):
                found.append(cell_leaf(part, each))
            else:
                found.append(self.constant(each.partition(".")[0], **more))
        return tuple(found)


def narrowest(constants: Constants, name: str, scope: dict[str, str]) -> ConstantRow | None:
    """The row that answers for a constant in a scope; None where no row fits."""
    asked = set(scope.items())
    fitting = [(len(pairs), row) for pairs, row in constants.by_name.get(name, ()) if set(pairs) <= asked]
    return max(fitting, key=lambda pair: pair[0])[1] if fitting else None


LABELS = {
    "accelerator_h": "accelerator-hours",
    "usd_per_accelerator_h": "price",
    "cost_usd": "cost",
    "cost_usd_per_year": "a year",
    "energy_j": "energy",
    "energy_j_per_year": "energy",
    "usd_per_1k_output_tokens": "per 1k",
    "first_year_usd": "first year",
    "items_usd": "bill",
    "bytes_per_year": "a year",
    "usd_per_query": "per query",
    "rate_per_replica_per_s": "rate per replica",
    "accelerators_j": "accelerators",
}


def _words(name: str) -> str:
    """`training_host_layer_s` as `host layer`."""
    name = LABELS.get(name, name)
    for unit in ("_fraction", "_factor", "_ratio", "_bytes_per_s", "_bytes", "_s", "_w"):
        name = name.removesuffix(unit)
    return name.removeprefix("training_").removeprefix("serving_").replace("_", " ")


def figures_of(part: object) -> dict[str, Any]:
    """The leaves of a part of a plan by their path below it."""
    return dict(leaves(to_data(part)))


@dataclass(frozen=True, slots=True)
class Noted:
    """What was noted of one part of a plan, and where its names lead to."""

    at: str  # path of that part; "" for the plan
    book: record.Book
    figures: Mapping[str, Any]  # the part's leaves by their path below it
    known: Known  # what names mean that nobody noted
    places: Mapping[str, str] = field(default_factory=dict)  # of notes that a plan calls otherwise

    def rows(self) -> Iterator[Derivation]:
        """How every figure of the part follows that was noted, and what lies between it and its leaves."""
        noted = [name for name, kept in self.book.items() if kept.inputs]  # others are leaves
        wanted = [name for name in noted if self.figures.get(self.place(name)) is not None]
        for name in wanted:  # grows by what lies between
            note = self.book[name]
            led = [each for each in note.inputs if each in self.book and each not in self.known]
            used = [each for each in note.inputs if each not in led or one(self.value(each))]
            inputs = [each for part in used for each in self.inputs(part)]
            formula = note.formula or " + ".join(each.label for each in inputs if each.path)
            yield Derivation(self.path(name), formula, tuple(inputs))
            wanted += [each for each in led if each in used and each not in wanted]

    def place(self, name: str) -> str:
        """Where a noted number stands below the part."""
        return self.places.get(name, name)

    def path(self, name: str) -> str:
        """The same as a path of the plan."""
        return f"{self.at}.{self.place(name)}" if self.at else self.place(name)

    def value(self, name: str) -> Any:
        """The number that was noted, or the middle of its estimate."""
        value = self.book[name].value
        return value.value if isinstance(value, Estimate) else value

    def inputs(self, name: str) -> tuple[Input, ...]:
        """What a name stands for: leaves, a figure, or a number between figures."""
        if name in self.known:
            found = self.known[name]
            return (found,) if isinstance(found, Input) else tuple(found)
        path, figure = self.path(name), self.figures.get(self.place(name))
        label = _words(path.removesuffix(".value").rpartition(".")[2])
        if is_estimate(figure):
            return (path_input(label, from_data(Estimate, figure), path),)
        if isinstance(estimate := self.book[name].value, Estimate):
            return (path_input(label, estimate, path),)
        value, unit = self.value(name), unit_of(name) or ("J" if name.endswith("_j") else "")
        text = f"{value:,}" if isinstance(value, int) else format_si(one(value), unit)
        return (Input(label, text, path, Source.FITTED.value, ""),)


def path_input(label: str, estimate: Estimate, path: str) -> Input:
    """Another number of the plan."""
    return Input(label, format_estimate(estimate), path, estimate.source.value, "")


def spec_leaf(label: str, text: str, where: str) -> Input:
    """What the spec says, which has no letter; `derive.default_marked` tells apart what is a default."""
    return Input(label, text, "", "", f"{SPEC}{where}")


CELLS = {  # of an accelerator's row: what they are called, and their unit, where the name does not say
    "memory_bytes_per_s": ("memory bandwidth", "B/s"),
    "memory_bytes": ("memory", "memory B"),
    "tdp_w": ("power limit", "W"),
    "idle_w": ("idle power", "W"),
    "pcie_generation": ("PCIe generation", ""),
}


def cell_leaf(accelerator: Accelerator, field: str) -> Input:
    """A cell of an accelerator's row."""
    label, unit = CELLS.get(field, (_words(field), unit_of(field) or ""))
    if field.endswith("_flops_per_s"):
        label, unit = f"{field.removesuffix('_flops_per_s')} peak", "FLOP/s"
    if field == "scaleup_bytes_per_s":
        label = accelerator.scaleup_name or "link"
    reference = f"accelerators.csv {accelerator.name} {field}"
    return Input(label, format_si(getattr(accelerator, field), unit), "", Source.VENDOR.value, reference)


def model_leaf(model: Model, field: str, value: float, label: str = "") -> Input:
    """A cell of a model's row or of its config.json."""
    text = format_si(value, "")
    table = "models.csv" if model.source and not model.source.endswith(".json") else "config.json of"
    return Input(label or _words(field), text, "", Source.VENDOR.value, f"{table} {model.name} {field}")


def supply_leaves(leaves: Leaves, price: PriceUsed | None, region: Region | None) -> dict[str, Input]:
    """What energy at the meter, carbon and money rest on."""
    found = {
        "node": leaves.constant("node_power_factor"),
        "pue": leaves.constant("pue_ratio"),
        "doubt": leaves.unknown("price"),
    }
    if region:
        found["region_pue"] = assumed_leaf("PUE", f"{region.pue:g}", f"regions.csv {region.name} pue")
        grid = format_si(region.grid_gco2_per_kwh, "gCO2/kWh")
        found["grid"] = assumed_leaf("grid", grid, f"regions.csv {region.name} grid_gco2_per_kwh")
    if price:
        found["listed"] = listed_input(price)
    return found


def listed_input(price: PriceUsed) -> Input:
    """A list price with its row."""
    where = f"{row_of(price.provider, price.instance, price.region, price.term)} {price.date}"
    listed, letter = price.usd_per_accelerator_h, price.usd_per_accelerator_h.source.value
    return Input("list price", format_si(listed.value, "USD/h"), "", letter, where)


def assumed_leaf(label: str, text: str, why: str) -> Input:
    """A figure of the model itself that no table holds."""
    return Input(label, text, "", Source.ASSUMED.value, why)


def spread_inputs(
    leaves: Leaves, interval: str, scope: Mapping[str, str], metric: str, kind: str
) -> tuple[Input, ...]:
    """What a derivation names for a range: the calibration and its factors, or sources left out."""
    own = Leaves(leaves.constants, (*scope.items(), ("metric", metric), ("kind", kind)))
    factors = tuple(
        Leaves(leaves.constants, (*scope.items(), ("factor", name))).constant(FACTOR, f"calibrated {name}")
        for name in factors_in(leaves.constants, scope)
    )
    if leaves.constants.has(SPREAD, **dict(own.scope)):
        return (*factors, own.constant(SPREAD, "spread on your rows left out"))
    figure = f"{metric} {dict(leaves.scope)['load']}" if scope["half"] == "inference" else metric
    enough = (scope["half"], figure) in load_known().plenty
    said = "spread on left-out sources" + ("" if enough else ", few of this load")
    return (*factors, leaves.constant(interval, said))
