"""What `simulate` is given: a spec, which is planned first, or a plan, which is taken as it is."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from twofold.answer import model_of
from twofold.app.local_tables import local_tables
from twofold.app.plan_files import plan_value
from twofold.app.planning import ready
from twofold.app.sources import SpecSource, calibration_file, device_folder
from twofold.catalog import Catalog, Model, load_catalog
from twofold.contracts.results import Plan, plan_to_json
from twofold.contracts.spec import ModelReference, Spec, Supply
from twofold.core import UnknownNameError, ValueRefusedError
from twofold.rehearse import RehearsalTables, measured_note, measured_services

SAID_SIZE = 4096  # bytes of a JSON file that are looked at for its schema


@dataclass(frozen=True, slots=True)
class Rehearsable:
    """A plan, and what its replicas and runs are built from again."""

    plan: Plan
    digest: str
    tables: RehearsalTables
    notes: tuple[str, ...]


def rehearsable(source: SpecSource | Plan, today: date | None = None) -> Rehearsable:
    """A spec is planned; a plan, its data or its file is taken as it is.

    Raises what `plan` raises for a spec, InputError for a plan that is broken.
    """
    if isinstance(source, Plan) or _is_plan(source):
        return _of_plan(source)
    own = ready(source, today)
    plan = own.planned().plan
    rows = measured_services(own.spec.services)
    models = _models_of(own.spec, own.catalog)
    made_of = RehearsalTables(own.catalog, own.constants, own.spec.supply, models, rows)
    return Rehearsable(plan, _digest(plan), made_of, measured_note(rows))


def _is_plan(source: object) -> bool:
    """Whether data or a file says that it is a plan; files that cannot be read are left to who reads them."""
    if isinstance(source, Mapping):
        return str(source.get("schema", "")).startswith("twofold/plan/")
    if isinstance(source, str) and ("\n" in source or ": " in source):
        return False
    path = Path(str(source))
    if path.suffix != ".json":
        return False
    try:
        with path.open("rb") as handle:
            return b'"twofold/plan/' in handle.read(SAID_SIZE)
    except OSError:
        return False


def _of_plan(source: Any) -> Rehearsable:
    plan = plan_value(source)
    beside = Path(source).parent if isinstance(source, (str, Path)) else Path.cwd()
    tables = local_tables(device_folder(beside), calibration_file(beside))
    catalog = load_catalog()
    notes = []
    if plan.digests.constants != tables.constants.digest:
        notes.append("the plan was made with other constants than these: its figures and the twin's differ")
    made_of = RehearsalTables(catalog, tables.constants, Supply(), _named_in(catalog))
    return Rehearsable(plan, _digest(plan), made_of, tuple(notes))


def _models_of(spec: Spec, catalog: Catalog) -> Callable[[str], Model]:
    """Models by the names that a plan of this spec uses."""
    found: dict[str, Model] = {}
    for service in spec.services:
        references: list[ModelReference] = [service.model, *(each.model for each in service.variants)]
        models = [model_of(reference, catalog) for reference in references if not reference.measured]
        found |= {model.name: model for model in models}
    return found.__getitem__


def _named_in(catalog: Catalog) -> Callable[[str], Model]:
    def find(name: str) -> Model:
        try:
            return catalog.model(name)
        except UnknownNameError as error:
            raise ValueRefusedError(
                f"the plan's model `{name}` is not in the catalogue, and a plan carries no config.json",
                hint="rehearse the spec instead: `twofold simulate SPEC`",
            ) from error

    return find


def _digest(plan: Plan) -> str:
    return hashlib.sha256(plan_to_json(plan).encode()).hexdigest()
