"""The catalogue: our tables with a user's rows laid over them, read when first asked for."""

import hashlib
import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from twofold.catalog.geography import distance_rtt_s
from twofold.catalog.names import canonical, checkpoint, did_you_mean, fitting, resolve
from twofold.catalog.parts import cut_node, cut_price, find_profile, part_of
from twofold.catalog.schema import DATA, DATE_PRECISION, REFERENCES, Column, schema
from twofold.catalog.tables import FILE_LIMIT_BYTES, Source, Table, read_table
from twofold.catalog.types import (
    TABLE_OF,
    Accelerator,
    Authorisation,
    EconomicFigure,
    Fabric,
    FacilityFigure,
    Model,
    ModelFamily,
    Node,
    Partition,
    Price,
    Region,
)
from twofold.core.errors import CatalogError, Place, UnknownNameError

PRICE_TOLERANCE_RATIO = 0.01  # between the price of a machine and that of its accelerators together
T = TypeVar("T")


class Catalog:
    """Every table, typed. Mutable only in what it has read so far: each table is parsed once, on demand."""

    def __init__(self, ours: Mapping[str, Source], users: Mapping[str, tuple[Source, ...]]) -> None:
        self._ours, self._users = ours, users
        self._read: dict[object, Any] = {}
        self._permits: Callable[[str, str], bool] | None = None
        self._whole: Catalog | None = None
        self.supplied: dict[Price, Any] = {}  # what is known of a price's machines, see `catalog/capacity.py`

    @property
    def digest(self) -> str:
        """SHA-256 over the bytes of all tables, a user's too: two equal digests plan alike."""
        return self._once("digest", self._digest)

    def rows(self, kind: type[T]) -> tuple[T, ...]:
        """Every row of one kind, such as `Storage`, in the order of its table."""
        return tuple(self.named(kind).values())

    def named(self, kind: type[T]) -> dict[str, T]:
        """The rows of a kind by name, or by number where rows have no name of their own; numbers in SI."""

        def read() -> dict[str, T]:
            table = self.table(TABLE_OF[kind])
            wanted = {field.name for field in fields(kind)} | {"memory_visible_bytes"}  # type: ignore[arg-type]  # every record is a dataclass
            taken = [column for column in table.columns if column.field in wanted]
            is_named = [column.name for column in table.columns if column.key] == ["name"]
            found: dict[str, T] = {}
            for index, row in enumerate(table.rows):
                values: dict[str, Any] = {column.field: column.si(row[column.name]) for column in taken}
                # Fields that follow from others where a row leaves them empty.
                if kind is Accelerator:
                    visible = values.pop("memory_visible_bytes")
                    values["memory_bytes"] = visible or values["memory_nominal_bytes"]
                elif kind is Price:
                    share = values["usd_per_h"] / values["accelerator_count"]
                    told = values["usd_per_accelerator_h"] = values["usd_per_accelerator_h"] or share
                    if abs(told / share - 1.0) > PRICE_TOLERANCE_RATIO:
                        what = f"`usd_per_accelerator_h` is {told:g}, its share of `usd_per_h` {share:g}"
                        hint = "mend one of them, or leave `usd_per_accelerator_h` empty"
                        raise CatalogError(what, place=table.places[index], hint=hint)
                    values["date_precision"] = values["date_precision"] or DATE_PRECISION[len(values["date"])]
                found[str(row["name"] if is_named else index)] = kind(**values)
            return found

        return self._once(kind, read)

    def accelerator(self, name: str) -> Accelerator:
        """One device by name or alias. A name that fits several parts (`A100`) is refused naming them.

        A profile behind a colon is a partition: `H100-SXM:1g.10gb`.
        """
        name, _, profile = name.partition(":")
        device = self._named("accelerator", Accelerator, name)
        return part_of(device, self._profile(device, profile)) if profile else device

    def benchmark_accelerator(self, name: str) -> Accelerator:
        """As `accelerator`, for names in published measurements, where `a100` means one known part."""
        return self.accelerator(self._benchmark(name))

    def model(self, name: str) -> Model:
        """The shape of a model by name, alias or repository name; a repository's tells its number formats."""
        shape, found = self._named("model", Model, name), checkpoint(name)
        told = found.weights_format or shape.native_format, found.kv_format
        if told == (shape.native_format, shape.kv_format):
            return shape
        return replace(shape, native_format=told[0], kv_format=told[1])

    def benchmark_model(self, name: str) -> Model:
        """As `model`, for the model names of published measurements."""
        return self.model(self._benchmark(name))

    def _benchmark(self, name: str) -> str:
        return self._aliases().get("benchmark", {}).get(canonical(name), (name,))[0]

    def family(self, model_type: str) -> ModelFamily:
        """What configs of this `model_type` leave unsaid."""
        return self.named(ModelFamily).get(model_type, ModelFamily(model_type))

    def node(self, name: str) -> Node:
        """A server or instance type by name; `DGX-H100:1g.10gb` is one with its devices cut."""
        name, _, profile = name.partition(":")
        node = self._named("node", Node, name)
        return cut_node(node, self._profile(self.accelerator(node.accelerator), profile)) if profile else node

    def nodes_with(self, accelerator_name: str) -> tuple[Node, ...]:
        """Nodes that hold this accelerator, in the order of the table."""
        name, _, profile = self.accelerator(accelerator_name).name.partition(":")
        nodes = tuple(node for node in self.rows(Node) if node.accelerator == name)
        return tuple(self.node(f"{node.name}:{profile}") for node in nodes) if profile else nodes

    def fabric(self, name: str) -> Fabric:
        """A class of network between nodes by name."""
        return self._named("fabric", Fabric, name)

    def region(self, name: str) -> Region:
        """A region as `provider:name`, or by its name alone where only one provider has it."""
        names, aliases = self._region_names()
        return self._regions()[resolve(name, "region", names, aliases, "regions", form=str.lower)]

    def place(self, provider: str, region: str) -> Region | None:
        """Where a price holds; None where the table of regions does not have it, as of many a provider."""
        # Nothing near is looked for, as for a message: that took 5 ms, dozens of times a plan.
        found = fitting(f"{provider}:{region}", *self._region_names(), form=str.lower)
        return self._regions()[found[0]] if len(found) == 1 else None

    def _region_names(self) -> tuple[dict[str, str], dict[str, tuple[str, ...]]]:
        """The regions by what they are called; dashes count: `us-east-1`, `us-east1` are two clouds'."""
        names = self._once("region names", lambda: {own.lower(): own for own in self._regions()})
        return names, self._once("region aliases", self._region_aliases)

    def regions(self) -> tuple[Region, ...]:
        return tuple(self._regions().values())

    def framework(self, name: str) -> str:
        """The short name of a training or serving framework: `TensorRT-LLM` is `trtllm`."""
        aliases = self._aliases().get("framework", {})
        names = {canonical(name): name for fits in aliases.values() for name in fits}
        bare = re.split(r"[\s:(]", name.strip(), maxsplit=1)[0]  # `NeMo 26.01`: a version that we do not list
        known = canonical(name) in {*names, *aliases} or canonical(bare) not in {*names, *aliases}
        return resolve(name if known else bare, "framework", names, aliases, "aliases")

    @property
    def is_restricted(self) -> bool:
        """Whether prices were left out because a rule forbids their places."""
        return self._permits is not None

    def restricted(self, permits: Callable[[str, str], bool]) -> "Catalog":
        """The same tables, of whose prices those count whose place `permits`; its digest is the whole's."""
        other = Catalog(self._ours, self._users)
        other._read = {key: value for key, value in self._read.items() if key != "prices by accelerator"}
        other._permits, other._whole = permits, self.whole
        return other

    @property
    def whole(self) -> "Catalog":
        """The same tables with every price."""
        return self._whole or self

    def prices(self) -> tuple[Price, ...]:
        prices, permits = self.rows(Price), self._permits
        if permits is None:
            return prices
        return tuple(price for price in prices if permits(price.provider, price.region))

    def prices_for(self, accelerator_name: str) -> tuple[Price, ...]:
        """Every price of an instance with this accelerator; empty where none is known."""

        def read() -> dict[str, list[Price]]:
            found: dict[str, list[Price]] = defaultdict(list)
            for price in self.prices():
                found[price.accelerator].append(price)
            return dict(found)

        by_name = self._once("prices by accelerator", read)
        full = self.accelerator(accelerator_name).name
        name, _, profile = full.partition(":")
        if not profile:
            return tuple(by_name.get(name, ()))
        part = self._profile(self.accelerator(name), profile)
        return (*by_name.get(full, ()), *(cut_price(price, part) for price in by_name.get(name, ())))

    def facility(self, category: str) -> tuple[FacilityFigure, ...]:
        """The figures of one kind about buildings, in the table's order; empty where there is none."""
        return tuple(figure for figure in self.rows(FacilityFigure) if figure.category == category)

    def economic(self, item: str) -> EconomicFigure:
        """One figure about money that no offer states: egress, support, salaries, an hour of outage."""
        figures = {figure.item: figure for figure in self.rows(EconomicFigure)}
        if item in figures:
            return figures[item]
        hint = did_you_mean(item, figures)
        raise UnknownNameError(f"`{item}` is not a row of the table economics", hint=hint)

    def authorisations(self, regime: str) -> tuple[Authorisation, ...]:
        """Who is authorised for a regime, and where."""
        return tuple(row for row in self.rows(Authorisation) if row.regime == regime)

    def partitions(self, accelerator_name: str) -> tuple[Partition, ...]:
        """The profiles that this accelerator can be cut into; empty where it cannot."""
        wanted = self.accelerator(accelerator_name).name
        return tuple(part for part in self.rows(Partition) if part.accelerator == wanted)

    def rtt_s(self, from_region: str, to_region: str) -> float:
        """Round trip between two regions: measured (the slower direction), else guessed from distance."""
        start, end = self.region(from_region), self.region(to_region)
        rows = self.table("rtt").rows
        pairs = self._once(
            "rtt", lambda: {(row["from"], row["to"]): float(row["rtt_ms"] or 0.0) / 1e3 for row in rows}
        )
        ends = (f"{start.provider}:{start.name}", f"{end.provider}:{end.name}")
        measured = [pairs[pair] for pair in (ends, ends[::-1]) if pair in pairs]
        return max(measured) if measured else distance_rtt_s(start, end)

    def table(self, name: str) -> Table:
        """Any table as rows of cells in the units of its columns."""
        if name not in schema():
            hint = did_you_mean(name, schema(), "tables: " + ", ".join(schema()))
            raise UnknownNameError(f"`{name}` is not a catalog table", hint=hint)
        return self._once(("table", name), lambda: self._read_table(name))

    def places_of_own(self, name: str) -> dict[str, Place]:
        """Where the rows of a table that a user's files hold are written, by their first column."""
        files = {source.file for source in self._users.get(name, ())}
        table = self.table(name)
        first = table.columns[0].name
        pairs = zip(table.rows, table.places, strict=True)
        return {str(row[first]): place for row, place in pairs if place.file in files}

    def table_names(self) -> tuple[str, ...]:
        return tuple(schema())

    def _once(self, key: object, make: Callable[[], T]) -> T:
        if key not in self._read:
            self._read[key] = make()
        found: T = self._read[key]
        return found

    def _read_table(self, name: str) -> Table:
        """The table; in a user's rows, other spellings of parts become the names that our tables use."""
        users = self._users.get(name, ())
        table = read_table(name, self._ours[name], *users)
        columns = [column for column in table.columns if column.type in REFERENCES]
        if not users or not columns:
            return table
        files, rows = {source.file for source in users}, list(table.rows)
        for index, place in enumerate(table.places):
            if place.file in files:
                names = {c.name: self._referred(c, str(rows[index][c.name]), place) for c in columns}
                rows[index] = {**rows[index], **names}
        return replace(table, rows=tuple(rows))

    def _referred(self, column: Column, name: str, place: Place) -> str:
        try:
            return self.fabric(name).name if column.type == "fabric" else self.accelerator(name).name
        except UnknownNameError as error:
            raise CatalogError(error.message, place=place, hint=error.hint) from None

    def _profile(self, device: Accelerator, profile: str) -> Partition:
        return find_profile(device, self.partitions(device.name), profile)

    def _digest(self) -> str:
        digest = hashlib.sha256()
        ours = {name: (source,) for name, source in self._ours.items()}
        for tables in (ours, self._users):
            for name in sorted(tables):
                for source in tables[name]:
                    digest.update(f"{name} {len(source.data)}\n".encode() + source.data)
        return digest.hexdigest()

    def _named(self, word: str, kind: type[T], name: str) -> T:
        """The row that a name or alias means; `word`: what a message calls it."""
        records = self.named(kind)
        names = self._once(("names", kind), lambda: {canonical(row): row for row in records})
        return records[resolve(name, word, names, self._aliases().get(word, {}), TABLE_OF[kind])]

    def _regions(self) -> dict[str, Region]:
        return self._once(
            "regions", lambda: {f"{region.provider}:{region.name}": region for region in self.rows(Region)}
        )

    def _aliases(self) -> dict[str, dict[str, tuple[str, ...]]]:
        """Kind → canonical alias → the names that it fits."""

        def read() -> dict[str, dict[str, tuple[str, ...]]]:
            found: dict[str, dict[str, tuple[str, ...]]] = defaultdict(dict)
            for row in self.table("aliases").rows:
                kind = found[str(row["kind"])]
                alias = canonical(str(row["alias"]))
                kind[alias] = (*kind.get(alias, ()), str(row["name"]))
            return dict(found)

        return self._once("aliases", read)

    def _region_aliases(self) -> dict[str, tuple[str, ...]]:
        """A region's bare name fits every provider that has it, unless aliases.csv says which is meant."""
        found: dict[str, tuple[str, ...]] = {}
        for own, region in self._regions().items():
            found[region.name.lower()] = (*found.get(region.name.lower(), ()), own)
        rows = [row for row in self.table("aliases").rows if row["kind"] == "region"]
        return found | {str(row["alias"]).lower(): (str(row["name"]),) for row in rows}


def load_catalog(*folders: Path | None) -> Catalog:
    """Our tables, overlaid by the CSV files of a user's `folders` (same names and headers), the last on top.

    A row of the same name overrides ours, and columns that the user's file leaves out are kept from it.
    The user's files are checked at once; ours are read when first asked for.
    """
    given = [folder for folder in folders if folder is not None]
    if not given:
        return _shipped()
    users: dict[str, tuple[Source, ...]] = {}
    for folder in given:
        for name, source in _user_sources(folder).items():
            users[name] = (*users.get(name, ()), source)
    catalog = Catalog(_our_sources(), users)
    for name in users:
        catalog.table(name)
    return catalog


@cache
def _our_sources() -> dict[str, Source]:
    return {name: Source(f"{name}.csv", (DATA / f"{name}.csv").read_bytes()) for name in schema()}


@cache
def _shipped() -> Catalog:
    return Catalog(_our_sources(), {})


def _user_sources(folder: Path) -> dict[str, Source]:
    """The tables in a user's folder. A CSV file that is no table is an error: its rows would not count.

    Beside the tables of a measured device lie its constants, which `perf` reads.
    """
    if not folder.is_dir():
        raise CatalogError(f"`{folder}` is not a folder", hint="put tables such as accelerators.csv into it")
    sources = {}
    for path in sorted(folder.glob("*.csv")):
        place = Place(str(path), 1, 1)
        if path.stem == "constants" and (folder / "device.json").exists():
            continue
        if path.stem not in schema():
            hint = did_you_mean(path.stem, schema(), "tables: " + ", ".join(schema()))
            raise CatalogError(f"`{path.name}` is not a catalog table", place=place, hint=hint)
        try:
            if path.stat().st_size > FILE_LIMIT_BYTES:
                raise CatalogError(f"the file is larger than {FILE_LIMIT_BYTES >> 20} MiB", place=place)
            sources[path.stem] = Source(str(path), path.read_bytes())
        except OSError as error:
            raise CatalogError(f"cannot read the table: {error.strerror}", place=place) from None
    return sources
