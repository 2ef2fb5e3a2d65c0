"""`init` and `check`: the first spec; whether one is right, and the servers described beside it."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from twofold.app.sources import SpecSource, load, names_of, whole_file
from twofold.catalog.catalog import Catalog, load_catalog
from twofold.contracts.spec.defaults import Default, defaults_used
from twofold.contracts.spec.inferring import infer_spec
from twofold.contracts.spec.spec import Spec
from twofold.contracts.spec.starter import starter_spec
from twofold.core.display import format_si
from twofold.core.errors import CatalogError, InputError, InputErrors
from twofold.report.answers import Shown

if TYPE_CHECKING:
    from twofold.building.own_nodes import NodeVerdict


@dataclass(frozen=True, slots=True)
class Checked(Shown):
    """A spec without errors, what it left open, and the servers described beside it."""

    schema = "twofold/check/1"
    spec: Spec
    defaults: tuple[Default, ...]
    nodes: "tuple[NodeVerdict, ...]" = ()
    quotes_count: int | None = None  # in the file of quotes; None: there is none
    notes: tuple[str, ...] = ()  # what to know of the mandates that papers cite

    @property
    def lines(self) -> list[str]:
        """What is planned, in one line, and how much of it is default; a line for each server of yours."""
        runs, services = len(self.spec.training), len(self.spec.services)
        planned = " and ".join(filter(None, (_counted(runs, "training run"), _counted(services, "service"))))
        return [
            f"{self.spec.name}: {planned}; {len(self.defaults)} values are defaults",
            *(line for verdict in self.nodes for line in _verdict_lines(verdict)),
            *([f"{_counted(self.quotes_count, 'quote')} can be read"] if self.quotes_count else []),
            *(f"  worth a look, `cites`: {note}" for note in self.notes),
        ]

    @property
    def as_data(self) -> dict[str, Any]:
        """Names of what is planned, and every value that the spec left open."""
        defaults = [{"path": one.path, "value": one.text, "meaning": one.meaning} for one in self.defaults]
        runs = [run.name for run in self.spec.training]
        services = [service.name for service in self.spec.services]
        return {"name": self.spec.name, "training": runs, "serving": services, "defaults": defaults}


def check(spec: SpecSource, today: date | None = None) -> Checked:
    """Read and validate a spec as `plan` would. Raises InputErrors with everything wrong, in one pass.

    Servers that the user's `nodes.csv` describes are judged too: power, ports and the rack that holds them;
    and the file of quotes, with `today` their days too, the mandates that the spec's papers cite, and what
    `up` would read before it releases.
    """
    loaded = load(spec)
    read, catalog = loaded.spec, loaded.catalog
    nodes = own_nodes(catalog, loaded.device)
    _check_releases(read)
    quotes_count: int | None = None
    notes: tuple[str, ...] = ()
    if read.supply.quotes is not None:
        from twofold.portfolio.quotes import read_quotes

        quotes_count = len(read_quotes(read.supply.quotes, catalog, today))
    if read.compliance is not None and read.compliance.cites:
        from twofold.building.compliance_evidence import cited_notes

        notes = cited_notes(catalog, read.compliance.cites, None)
    return Checked(read, defaults_used(read), nodes, quotes_count, notes)


def _check_releases(spec: Spec) -> None:
    """What `up` reads before it releases. Raises InputErrors with every file that is not what it is for."""
    keys = [each.signed_by for each in spec.services if each.signed_by is not None]
    sets = [each.evaluated_on for each in spec.services if each.evaluated_on is not None]
    if not keys and not sets:
        return
    from twofold.app import releasing
    from twofold.live.registry.registry import Registry

    errors: list[InputError] = []
    for read, paths in ((Registry.check_key, keys), (releasing.own_set, sets)):
        for path in paths:
            try:
                read(path)
            except InputError as error:
                errors.append(error)
    if errors:
        raise errors[0] if len(errors) == 1 else InputErrors(errors)


def own_nodes(catalog: Catalog, device: Path | None = None) -> "tuple[NodeVerdict, ...]":
    """The servers of a user's tables, judged; not the one that was measured: it stands already.

    Raises InputErrors with the place of each that cannot be.
    """
    places = {
        name: place
        for name, place in catalog.places_of_own("nodes").items()
        if device is None or not Path(place.file).is_relative_to(device)
    }
    if not places:
        return ()
    from twofold.building.own_nodes import judge_node

    verdicts = tuple(judge_node(catalog, catalog.node(name)) for name in places)
    errors: list[InputError] = [
        CatalogError(
            finding.message, place=places[verdict.node], hint=f"look at `{finding.column}` of {verdict.node}"
        )
        for verdict in verdicts
        for finding in verdict.findings
        if finding.severity == "error"
    ]
    if errors:
        raise errors[0] if len(errors) == 1 else InputErrors(errors)
    return verdicts


def _verdict_lines(verdict: "NodeVerdict") -> Iterator[str]:
    """`our-box passes: 9.8 kW (its parts add up to 10 kW), 8 cards of 400 Gb/s; a rack holds 4 …`."""
    gbit = verdict.card_bytes_per_s * 8 / 1e9
    cards = f"{verdict.card_count} card{'s' if verdict.card_count != 1 else ''} of {gbit:.0f} Gb/s"
    planned, by_parts = (format_si(each, "W") for each in (verdict.planned_w, verdict.modelled_w))
    power = planned if planned == by_parts else f"{planned} (its parts add up to {by_parts})"
    yield (
        f"{verdict.node} passes: {power}, {cards}; a rack holds {verdict.nodes_per_rack}, cooled by "
        f"{verdict.cooling}"
    )
    for finding in verdict.findings:
        yield f"  worth a look, `{finding.column}`: {finding.message}"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' if count > 1 else ''}" if count else ""


@dataclass(frozen=True, slots=True)
class FirstSpec(Shown):
    """A spec to begin with, and the file that it was written to; None where it is only shown."""

    schema = "twofold/init/1"
    file: str | None
    spec: str

    @property
    def lines(self) -> list[str]:
        """The spec itself, or what to do with its file."""
        if self.file is None:
            return self.spec.splitlines()
        return [f"wrote {self.file}", f"next: twofold check {self.file} · twofold plan {self.file}"]


def starter(kind: Literal["chat", "train", "both"]) -> str:
    """A commented spec to begin with: `chat`, `train` or `both`."""
    return starter_spec(kind)


def infer(source: str) -> str:
    """The spec that an engine's line or script, a request log or a Slurm accounting file lets infer."""
    return infer_spec(source, names_of(load_catalog()))


def first_spec(
    kind: Literal["chat", "train", "both"] = "both", source: str | None = None, out: Path = Path("-")
) -> FirstSpec:
    """A starter, or with `source` what it lets infer, written to `out`; `-` writes no file."""
    text = starter(kind) if source is None else infer(source)
    if out == Path("-"):
        return FirstSpec(None, text)
    with whole_file(out) as handle:
        handle.write(text)
    return FirstSpec(str(out), text)
