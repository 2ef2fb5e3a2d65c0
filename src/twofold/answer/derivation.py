"""The pieces of a derivation: other paths of the plan, and leaves that name where they were read."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from twofold.catalog import Accelerator, Model
from twofold.contracts.results import Derivation, Input, Part, PriceUsed
from twofold.core import Estimate, Source, format_estimate, format_si
from twofold.perf import ConstantRow, Constants

Table = Mapping[str, tuple[str, str]]  # path -> formula, names of its inputs
Known = Mapping[str, Input | Sequence[Input]]  # by the names that tables use


@dataclass(frozen=True, slots=True)
class Leaves:
    """Makes leaves of one run or service: its constants and the scope in which they are read."""

    constants: Constants
    scope: tuple[tuple[str, str], ...]

    def constant(self, name: str, label: str = "") -> Input:
        """A fitted constant by its narrowest row: value, range, and the rows it rests on."""
        row = narrowest(self.constants, name, dict(self.scope))
        if row is None:
            return Input(label or name, "", "", Source.ASSUMED.value, f"constants.csv {name}")
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


def narrowest(constants: Constants, name: str, scope: dict[str, str]) -> ConstantRow | None:
    """The row that answers for a constant in a scope; None where no row fits."""
    asked = set(scope.items())
    fitting = [(len(pairs), row) for pairs, row in constants.by_name.get(name, ()) if set(pairs) <= asked]
    return max(fitting, key=lambda pair: pair[0])[1] if fitting else None


def _words(name: str) -> str:
    """`training_host_layer_s` as `host layer`."""
    for unit in ("_fraction", "_factor", "_ratio", "_bytes_per_s", "_bytes", "_s"):
        name = name.removesuffix(unit)
    return name.removeprefix("training_").removeprefix("serving_").replace("_", " ")


def derived(path: str, formula: str, *inputs: Input) -> Derivation:
    """One path of the plan, how it follows, and from what."""
    return Derivation(path, formula, inputs)


def named(names: str, known: Known) -> Iterator[Input]:
    """The inputs of a row of a table."""
    for name in names.split():
        found = known[name]
        yield from (found,) if isinstance(found, Input) else found


def rows(at: str, table: Table, known: Known) -> Iterator[Derivation]:
    """The rows of a table whose inputs are all known."""
    for path, (formula, names) in table.items():
        if known.keys() >= set(names.split()):
            yield derived(f"{at}.{path}", formula, *named(names, known))


def grid_leaf(price: PriceUsed | None) -> Input:
    """The carbon of a place's electricity."""
    place = price.region if price else ""
    return assumed_leaf("grid", "gCO2 per kWh", f"regions.csv {place} grid_gco2_per_kwh")


def bandwidth_leaf(accelerator: Accelerator) -> Input:
    """The memory bandwidth of an accelerator's row."""
    rate = accelerator.memory_bytes_per_s
    return accelerator_leaf(accelerator, "memory_bytes_per_s", rate, "B/s", "memory bandwidth")


def path_input(label: str, estimate: Estimate, path: str) -> Input:
    """Another number of the plan."""
    return Input(label, format_estimate(estimate), path, estimate.source.value, "")


def step_input(label: str, value: float, unit: str, path: str) -> Input:
    """A number between the plan's figures, which has a derivation of its own."""
    return Input(label, format_si(value, unit), path, Source.FITTED.value, "")


def spec_leaf(label: str, text: str, where: str) -> Input:
    """What the spec says, or its default."""
    return Input(label, text, "", Source.ASSUMED.value, f"spec {where}")


def accelerator_leaf(accelerator: Accelerator, field: str, value: float, unit: str, label: str = "") -> Input:
    """A cell of an accelerator's row."""
    reference = f"accelerators.csv {accelerator.name} {field}"
    return Input(label or _words(field), format_si(value, unit), "", Source.VENDOR.value, reference)


def model_leaf(model: Model, field: str, value: float, label: str = "") -> Input:
    """A cell of a model's row or of its config.json."""
    text = format_si(value, "")
    table = "models.csv" if model.source and not model.source.endswith(".json") else "config.json of"
    return Input(label or _words(field), text, "", Source.VENDOR.value, f"{table} {model.name} {field}")


def price_leaf(price: PriceUsed) -> Input:
    """The row of a price."""
    used = price.usd_per_accelerator_h
    where = f"prices.csv {price.provider} {price.instance} {price.region} {price.term} {price.date}"
    return Input("list price", format_si(used.value, "USD/h"), "", Source.VENDOR.value, where)


def assumed_leaf(label: str, text: str, why: str) -> Input:
    """A figure of the model itself that no table holds."""
    return Input(label, text, "", Source.ASSUMED.value, why)


def part_inputs(parts: Sequence[Part], path: str) -> tuple[Input, ...]:
    """The parts of a total as its inputs."""
    return tuple(path_input(part.name, part.value, f"{path}.{part.name}.value") for part in parts)
