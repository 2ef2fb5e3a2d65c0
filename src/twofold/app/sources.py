"""What verbs take as a spec: a file, a folder with a `twofold.yaml`, YAML text, a mapping, or a Spec."""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from twofold.app.kinds import refuse_for_a_spec
from twofold.catalog.catalog import Catalog, load_catalog
from twofold.catalog.places import region_names
from twofold.catalog.types import Accelerator, MandateRow, Model, Node, Partition
from twofold.contracts.names import Names, fold
from twofold.contracts.spec.parts import ModelReference
from twofold.contracts.spec.reader import parse_spec, read_spec, written_by
from twofold.contracts.spec.service import Service
from twofold.contracts.spec.spec import Spec
from twofold.core.errors import FileError, unread

SPEC_FILE = "twofold.yaml"
CATALOG_FOLDER = "catalog"  # beside the spec: rows that override ours
DEVICE_FOLDER = Path(".twofold", "device")  # beside the spec: what `measure device` found
REGISTRY_FOLDER = ".twofold-registry"  # beside the spec: models by digest
DEVICE_FILE = "device.json"  # written with its tables, whole or not at all
CALIBRATION_FILE = Path(".twofold", "calibration.json")  # beside the spec: what `calibrate` found
STARTS_FILE = Path(".twofold", "starts.csv")  # beside the spec: what `up --scale-out` measured
JOINED = 8  # accelerators that links join on a board; fewer are cards with a bridge between them
SLOTS = 16  # for cards, in the largest servers of the catalogue and on the market

SpecSource = Path | str | Mapping[str, Any] | Spec


@dataclass(frozen=True, slots=True)
class Loaded:
    """A spec with the catalogue that it is planned against, and the digest that a plan records."""

    spec: Spec
    catalog: Catalog
    digest: str
    device: Path | None = None  # the folder of a measured device beside the spec
    calibration: Path | None = None  # the file of a calibration beside it
    file: Path | None = None
    starts: Path | None = None  # measured starts of replicas beside it


def load(source: SpecSource) -> Loaded:
    """Read and validate a spec. Text with a line break, or with `: `, is YAML; other text is a path."""
    if isinstance(source, Spec):
        catalog = load_catalog()
        return Loaded(source, catalog, _digest(source.model_dump_json().encode()))
    if isinstance(source, Mapping):
        return _from_text(json.dumps(source, ensure_ascii=False, default=str))
    if isinstance(source, str) and ("\n" in source or ": " in source):
        return _from_text(source)
    path = spec_path(Path(source))
    try:
        path.stat()  # before what lies beside it is looked for
    except (OSError, ValueError) as error:  # ValueError: a path with a NUL
        raise unread(path, error, written_by(path)) from error
    refuse_for_a_spec(path)
    folder = path.parent / CATALOG_FOLDER
    device = device_folder(path.parent)
    catalog = load_catalog(device, folder if folder.exists() else None)
    spec = with_registered(read_spec(path, names_of(catalog)), path.parent)
    digest = _digest(path.read_bytes() + _referenced_bytes(spec))
    return Loaded(
        spec, catalog, digest, device, calibration_file(path.parent), path, starts_file(path.parent)
    )


def with_registered(spec: Spec, beside: Path) -> Spec:
    """The spec with the config of each model that it names in the registry beside it, checked by its digest.

    Raises FileError without a registry, UnknownNameError for what is not there, AlteredError for what this
    registry did not seal, and ValueRefusedError for one without a config.json.
    """
    models = [each.model for each in spec.training] + [each.model for each in spec.services]
    models += [each.model for service in spec.services for each in service.variants]
    models += in_need(spec)
    named = {model.registry for model in models if model.registry} - {None}
    if not named:
        return spec
    from twofold.live.registry.registry import Registry  # which other specs do not wait for

    opened = Registry(beside.resolve() / REGISTRY_FOLDER)
    try:
        configs = {name: opened.config_of(name) for name in sorted(filter(None, named))}
    finally:
        opened.close()

    def found(entry: Any) -> Any:
        model = entry.model
        config = configs.get(model.registry or "") if model else None
        return (
            entry.model_copy(update={"model": model.model_copy(update={"config": config})})
            if config
            else entry
        )

    def of_service(service: Service) -> Service:
        policies, variants = service.policies, tuple(map(found, service.variants))
        if smaller := policies.degradation.smaller:
            degradation = policies.degradation.model_copy(update={"smaller": found(smaller)})
            policies = policies.model_copy(update={"degradation": degradation})
        told: Service = found(service)
        return told.model_copy(update={"variants": variants, "policies": policies})

    services = tuple(map(of_service, spec.services))
    return spec.model_copy(update={"training": tuple(map(found, spec.training)), "services": services})


def in_need(spec: Spec) -> list[ModelReference]:
    """The smaller models that services name for what they do in need."""
    told = (service.policies.degradation.smaller for service in spec.services)
    return [each.model for each in told if each is not None and each.model is not None]


def device_folder(beside: Path) -> Path | None:
    """The folder of a device that was measured for specs in `beside`; None without one."""
    folder = beside / DEVICE_FOLDER
    return folder if (folder / DEVICE_FILE).is_file() else None


def calibration_file(beside: Path) -> Path | None:
    """The file of a calibration made for specs in `beside`; None without one."""
    file = beside / CALIBRATION_FILE
    return file if file.exists() else None


def starts_file(beside: Path) -> Path | None:
    """The table of measured starts for specs in `beside`; None without one."""
    file = beside / STARTS_FILE
    return file if file.exists() else None


def spec_path(path: Path) -> Path:
    """The spec that a path means: a folder stands for the `twofold.yaml` in it."""
    return path / SPEC_FILE if os.path.isdir(path) else path  # noqa: PTH112 (`is_dir` raises where it may not look)


def names_of(catalog: Catalog) -> Names:
    """Every name and alias that a spec may use."""
    aliases: dict[str, set[str]] = {}
    for row in catalog.table("aliases").rows:
        aliases.setdefault(str(row["kind"]), set()).add(str(row["alias"]))
    # Software has no table of its own: what aliases stand for is a name too.
    software = {str(row["name"]) for row in catalog.table("aliases").rows if row["kind"] == "framework"}
    named = {
        "model": {model.name for model in catalog.rows(Model)},
        "accelerator": {accelerator.name for accelerator in catalog.rows(Accelerator)},
        "node": {node.name for node in catalog.rows(Node)},
        "region": set(region_names(catalog)),
    }
    full = {f"{kind}s": frozenset(names | aliases.get(kind, set())) for kind, names in named.items()}
    return Names(
        **full,
        providers=frozenset(price.provider for price in catalog.prices()),
        frameworks=frozenset(aliases.get("framework", set()) | software),
        mandates=frozenset(catalog.named(MandateRow)),
        profiles=_profiles(catalog),
        per_server=_per_server(catalog),
    )


def _profiles(catalog: Catalog) -> dict[str, tuple[str, ...]]:
    """What devices are cut into, by every name of theirs and of the nodes that hold them."""
    found: dict[str, tuple[str, ...]] = {}
    for part in catalog.rows(Partition):
        found[part.accelerator] = (*found.get(part.accelerator, ()), part.profile)
    found |= {each.name: found[each.accelerator] for each in catalog.rows(Node) if each.accelerator in found}
    rows = (row for row in catalog.table("aliases").rows if row["kind"] in ("accelerator", "node"))
    other = {str(row["alias"]): found[str(row["name"])] for row in rows if row["name"] in found}
    return {fold(name): profiles for name, profiles in (other | found).items()}


def _per_server(catalog: Catalog) -> dict[str, int]:
    """The most of each accelerator, and of its slices, that one server holds, by every name of theirs.

    Parts that links join are as many as the links reach or a node of the tables holds; cards are bought in
    servers that no table lists, of at most SLOTS. Processors are left out: their ranks share cores.
    """
    most: dict[str, int] = {}
    for part in catalog.rows(Accelerator):
        if part.family != "cpu":
            linked = part.scaleup_domain_count >= JOINED
            most[part.name] = part.scaleup_domain_count if linked else SLOTS
    for node in catalog.rows(Node):
        if node.accelerator in most:
            most[node.accelerator] = max(most[node.accelerator], node.accelerator_count)
    rows = [row for row in catalog.table("aliases").rows if row["kind"] == "accelerator"]
    named = most | {str(row["alias"]): most[str(row["name"])] for row in rows if row["name"] in most}
    others = {name: [name] for name in most}
    for row in rows:
        others.setdefault(str(row["name"]), []).append(str(row["alias"]))
    for cut in catalog.rows(Partition):
        for name in others[cut.accelerator] if cut.accelerator in most else ():
            named[f"{name}:{cut.profile}"] = most[cut.accelerator] * cut.count_max
    return {fold(name): count for name, count in named.items()}


def _referenced_bytes(spec: Spec) -> bytes:
    """What the files hold that a spec names: with another model, trace or table it is another question."""
    models = [run.model for run in spec.training] + [service.model for service in spec.services]
    models += [variant.model for service in spec.services for variant in service.variants]
    models += in_need(spec)
    paths = [path for model in models for path in (model.config, model.measured) if path]
    classes = [each for service in spec.services for each in service.classes.values()]
    paths += [each.traffic.trace for each in classes if each.traffic.trace]
    return b"".join(Path(path).read_bytes() for path in paths if Path(path).is_file())


def _from_text(text: str) -> Loaded:
    catalog = load_catalog()
    return Loaded(parse_spec(text, "spec", names_of(catalog)), catalog, _digest(text.encode()))


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@contextmanager
def whole_file(path: Path) -> Iterator[TextIO]:
    """A text file to write to, which takes its name when all is written; after an error nothing is left.

    A link stays, and what it points to is written; a device or a pipe is written to as it stands.
    """
    if path.exists() and not path.is_file():
        try:
            with path.open("w", encoding="utf-8", newline="") as handle:
                yield handle
        except BrokenPipeError as error:  # of this pipe, and not of the screen
            raise FileError(f"`{path}` was closed before all was written") from error
        return
    target = path.resolve()
    unfinished = target.with_name(f".{target.name}.unfinished")
    try:
        with unfinished.open("w", encoding="utf-8", newline="") as handle:
            yield handle
        unfinished.replace(target)
    except OSError as error:
        if error.filename in (None, str(unfinished)):  # people know the file by the name they gave it
            error.filename, error.filename2 = str(path), None
        raise
    finally:
        unfinished.unlink(missing_ok=True)
