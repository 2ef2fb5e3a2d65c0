"""`plan`, `compare`, `explain` and `diff`: a spec becomes a plan, a plan tells where a number comes from."""

import hashlib
import json
import os
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any, Literal

from twofold import __version__
from twofold.answer.ladders import Ladders, compare_along
from twofold.app.kinds import LARGEST_BYTES, PLAN, refused_for_a_plan
from twofold.app.local_tables import local_tables
from twofold.app.sources import (
    CATALOG_FOLDER,
    SpecSource,
    calibration_file,
    device_folder,
    load,
    starts_file,
)
from twofold.catalog.catalog import Catalog, load_catalog
from twofold.contracts.results.plan import Plan
from twofold.contracts.spec.spec import Spec
from twofold.core.data import DataError, from_data, to_data, to_json
from twofold.core.errors import (
    EmptyError,
    FileError,
    InfeasibleError,
    InputError,
    Place,
    TwofoldError,
    unread,
)
from twofold.money.detail import detailed_money
from twofold.pages.shown_plan import ShownPlan
from twofold.perf.constants import Constants
from twofold.planner.build import Planned, PlanOptions, build_plan
from twofold.planner.compare import Comparison, compare_halves
from twofold.planner.explained import explain as explanation
from twofold.report.answers import Shown, ShownData
from twofold.report.compare import comparison_lines
from twofold.report.details import screen_lines
from twofold.report.differences import Difference
from twofold.report.lines import heading

# Of a saved plan alone: the plan itself is the same wherever its spec stands.
SPEC_KEY, CONTENT_KEY = "spec_file", "content_sha256"
LEFT_OUT = "leave out `{}`, and the rest is planned"
PlanSource = Plan | Path | str | Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Explanation(Shown):
    """Where one number of a plan comes from, as a tree of lines."""

    schema = "twofold/explain/1"
    path: str
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PlanScreen(ShownData[Plan]):
    """A plan with its screens; its file says where the spec stands and what it holds itself, so that a change
    of either is noticed."""

    spec_file: Path | None = None

    def saved_at(self, path: Path) -> str:
        """The plan's JSON, its digest, and the way from the folder of its file to the spec."""
        data = {**self._data, CONTENT_KEY: _content_sha256(json.loads(to_json(self._data)))}
        if self.spec_file is not None:
            data[SPEC_KEY] = os.path.relpath(self.spec_file.resolve(), path.resolve().parent)
        return to_json(data, only_ascii=self.only_ascii)


@dataclass(frozen=True, slots=True)
class Ready:
    """A spec with everything that it is planned with: its tables, and those that lie beside it."""

    spec: Spec
    digest: str
    catalog: Catalog
    constants: Constants
    options: PlanOptions
    file: Path | None = None

    def planned(self) -> Planned:
        """The plan with what it was chosen from. Raises InputError and InfeasibleError."""
        given = self.spec, self.catalog, self.constants
        try:
            return build_plan(*given, spec_digest=self.digest, options=self.options)
        except InfeasibleError as error:
            left = self.without(error.whose)
            error.hint = error.hint or (left and LEFT_OUT.format(error.whose)) or ""
            raise
        except InputError as error:
            error.place = error.place or (named_in(self.file, error.message) if self.file else None)
            raise

    def without(self, name: str) -> "Ready | None":
        """The same without one run or service; None where that leaves nothing, or everything."""
        training = tuple(each for each in self.spec.training if each.name != name)
        services = tuple(each for each in self.spec.services if each.name != name)
        left = len(training) + len(services)
        if left in (0, len(self.spec.training) + len(self.spec.services)):
            return None
        return replace(self, spec=self.spec.model_copy(update={"training": training, "services": services}))


def named_in(file: Path, message: str) -> Place | None:
    """Where a spec names the run, service or class that a message names first; None where it does not."""
    told = re.search(r"`([\w-]+)`", message)
    for number, line in enumerate(file.read_text("utf-8").splitlines() if told else (), 1):
        if told and (found := re.search(rf"(?<![\w-]){told[1]}(?=\s*:)|(?<=name: ){told[1]}\b", line)):
            return Place(str(file), number, found.start() + 1)
    return None


def ready(spec: SpecSource, today: date | None) -> Ready:
    """Read a spec and its tables, and what a plan says of the day and of what was measured here."""
    loaded = load(spec)
    tables = local_tables(loaded.device, loaded.calibration, today, loaded.starts, loaded.catalog)
    options = PlanOptions(
        today=today, calibration=tables.summary, calibration_digest=tables.digest, notes=tables.notes
    )
    return Ready(loaded.spec, loaded.digest, loaded.catalog, tables.constants, options, loaded.file)


def plan(spec: SpecSource, today: date | None = None) -> ShownPlan:
    """Plan both halves of a spec: a path, YAML text, a mapping, or a Spec.

    With `today`, prices older than twelve months are warned of. Raises InputError for a spec that cannot be
    planned as written, InfeasibleError when nothing meets it.
    """
    return ShownPlan.of(ready(spec, today).planned().plan)


def rehearsed_plan(
    spec: SpecSource, today: date | None = None, tell: Callable[[str], None] = lambda _: None
) -> ShownPlan:
    """The same plan, the fleet of every service confirmed on the twin.

    `tell` hears how far that is. A fleet that misses a goal there takes the fewest replicas that hold.
    """
    return ShownPlan.of(_rehearsed(spec, today, tell).plan)


def _rehearsed(spec: SpecSource, today: date | None, tell: Callable[[str], None]) -> Planned:
    own = ready(spec, today)
    return replace(own, options=replace(own.options, rehearse=True, tell=tell)).planned()


def explain(plan: PlanSource, path: str) -> Explanation:
    """The derivation of one number of a plan, such as `training.pretrain.step_s`, down to catalogue rows."""
    if not isinstance(plan, (str, Path)):
        return Explanation(path, explanation(plan_data(plan), path))
    file = Path(plan)
    data = read_plan(file)
    lines = explanation(plan_data(data), path)
    notes = (*spec_changed(data, file), *_made_with_others(data, file))
    return Explanation(path, (*lines, *(line for note in notes for line in heading("NOTE", note))))


def _made_with_others(data: Mapping[str, Any], file: Path) -> tuple[str, ...]:
    """Of a plan's file, by tables that a new one would be made with; nothing where these are broken."""
    digests = data.get("digests")
    if not isinstance(digests, dict):
        return ()
    folder = (spec_beside(data, file) or file).parent
    own = folder / CATALOG_FOLDER
    device = device_folder(folder)
    try:
        catalog = load_catalog(device, own if own.exists() else None)
        tables = local_tables(device, calibration_file(folder), None, starts_file(folder), catalog)
    except TwofoldError:
        return ()
    of_catalog, of_constants = str(digests.get("catalog")), str(digests.get("constants"))
    return made_with(of_catalog, of_constants, str(data.get("twofold")), catalog, tables.constants)


def made_with(
    catalog_digest: str, constants_digest: str, release: str, catalog: Catalog, constants: Constants
) -> tuple[str, ...]:
    """What to know of a plan whose figures a new one would not have, for its tables or its release."""
    stale = []
    if catalog_digest != catalog.digest:
        stale.append("another catalogue, prices among it")
    if constants_digest != constants.digest:
        stale.append("other fitted constants")
    if release != __version__:
        stale.append(f"another release ({release})")
    if not stale:
        return ()
    others = " and ".join(stale)
    return (f"a new plan may differ: this one was made with {others}; `twofold plan SPEC` makes it",)


def diff(old: PlanSource, new: PlanSource, everything: bool = False) -> Difference:
    """What changed between two plans; a Difference that is false when nothing did.

    It prints what matters most, or with `everything` all changes in the order of a plan.
    """
    return Difference.between(plan_data(old), plan_data(new), everything)


def plan_screen(
    spec: Path,
    full: bool,
    details: bool,
    money: bool,
    rehearse: bool,
    show_defaults: bool,
    today: date,
    tell: Callable[[str], None],
    as_data: bool,
    chart: bool = False,
) -> ShownData[Plan]:
    """A plan with the screens that were asked for, one below the other; with `chart` pictures of text last.

    What the decision does not show is computed where a longer screen or data is asked for (`as_data`).
    Raises InfeasibleError for what nothing meets, with the answer of what is planned without it.
    """
    own = ready(spec, today)
    in_full = full or details or money or as_data or chart
    own = replace(own, options=replace(own.options, rehearse=rehearse, tell=tell, in_full=in_full))
    made, refused = feasible(own)
    answer = detailed_money(made.plan, made.runs, made.services, made.context) if money else made.plan
    named = shlex.quote(str(spec))  # as commands that come next name it
    lines = screen_lines(answer, named, full=full, details=details, money=money, defaults=show_defaults)
    if chart:
        from twofold.charts.of_plan import charts_of_plan  # rarely asked for
        from twofold.charts.text import text_of

        lines += [line for each in charts_of_plan(answer) for line in ("", *text_of(each))]
    if not refused:
        return PlanScreen(answer, tuple(lines), own.file)
    without = f"WITHOUT {', '.join(f'`{each.whose}`' for each in refused)}"
    first, *others = refused
    first.others = tuple(others)
    first.left = PlanScreen(answer.without(refused), ("", without, *lines), own.file)
    raise first


def feasible(own: Ready) -> tuple[Planned, list[InfeasibleError]]:
    """What is planned, and of each run and service that it is without why nothing meets it.

    Raises the first of them where nothing is left to plan.
    """
    refused: list[InfeasibleError] = []
    while True:
        try:
            return own.planned(), refused
        except InfeasibleError as error:
            refused.append(error)
            left = own.without(error.whose)
            if left is None:
                refused[0].others = tuple(refused[1:])
                if refused[1:]:  # without it nothing is planned either
                    refused[0].hint = refused[0].hint.removesuffix(LEFT_OUT.format(refused[0].whose))
                raise refused[0] from None
            own = left


def plan_data(source: PlanSource) -> dict[str, Any]:
    """A plan as plain data, from a Plan, its data, or the file that `twofold plan --out` wrote.

    Raises InputError for what is no plan, or is one that somebody changed by hand.
    """
    if isinstance(source, Plan):
        made: dict[str, Any] = to_data(source)
        return made
    data = dict(source) if isinstance(source, Mapping) else read_plan(Path(source))
    for key in (SPEC_KEY, CONTENT_KEY):
        data.pop(key, None)
    plan_value(data)
    return data


def plan_to_json(plan: Plan) -> str:
    """The plan as JSON text: the same plan gives the same bytes."""
    return to_json(plan, only_ascii=True)


def plan_digest(plan: Plan) -> str:
    """SHA-256 of that text."""
    return hashlib.sha256(plan_to_json(plan).encode()).hexdigest()


def read_plan(path: Path) -> dict[str, Any]:
    """A plan's JSON as a mapping. Raises InputError when it is not one of this schema, or far too large."""
    try:
        if (size := path.stat().st_size) > LARGEST_BYTES and path.is_file():
            what = f"`{path}` has {size / 1e6:,.0f} MB: a plan has {LARGEST_BYTES / 1e6:,.0f} MB at most"
            raise FileError(what, hint="write one with `twofold plan SPEC --out FILE`")
        data = json.loads(path.read_text("utf-8"))
    except IsADirectoryError as error:
        raise refused_for_a_plan(path, "") from error
    except OSError as error:
        raise unread(path, error, "write one with `twofold plan SPEC --out FILE`") from error
    except (ValueError, RecursionError) as error:
        raise refused_for_a_plan(path, "") from error
    schema = str(data.get("schema", "")) if isinstance(data, dict) else ""
    if schema != PLAN:
        raise refused_for_a_plan(path, schema if schema.startswith("twofold/") else "")
    found: dict[str, Any] = data
    if CONTENT_KEY in found and found[CONTENT_KEY] != _content_sha256(found):
        what = f"`{path}` was changed since `plan` wrote it: its numbers are no longer one answer"
        raise FileError(what, hint="change the spec, and write it anew with `twofold plan SPEC --out FILE`")
    return found


def _content_sha256(data: Mapping[str, Any]) -> str:
    """Of a plan's JSON, whatever its order and spaces."""
    held = {key: value for key, value in data.items() if key not in (SPEC_KEY, CONTENT_KEY)}
    return hashlib.sha256(json.dumps(held, sort_keys=True).encode()).hexdigest()


def spec_beside(data: Mapping[str, Any], file: Path) -> Path | None:
    """The spec that a plan's file names, changed or not; None of a plan that was moved away from it."""
    spec = file.parent / str(data.get(SPEC_KEY, ""))
    return spec if SPEC_KEY in data and spec.is_file() else None


def spec_changed(data: Mapping[str, Any], file: Path) -> tuple[str, ...]:
    """What to know where the spec that a plan's file names, or a file that it reads, has changed since.

    Nothing of a plan that was moved away from its spec.
    """
    spec = spec_beside(data, file)
    if spec is None:
        return ()
    shown = shlex.quote(os.path.relpath(spec))
    try:
        if load(spec).digest == data["digests"]["spec"]:
            return ()
        what = f"`{shown}`, or a file that it names, has changed since this plan was made"
    except TwofoldError:
        what = f"`{shown}` has changed since this plan was made, and cannot be read by now"
    again = f"twofold plan {shown} --out {shlex.quote(str(file))} --force"
    return (f"{what}; `{again}` makes a new one",)


def plan_value(source: PlanSource) -> Plan:
    """The plan of a Plan, its data, or its file. Raises InputError where it is broken."""
    if isinstance(source, Plan):
        return source
    data = source if isinstance(source, Mapping) else read_plan(Path(source))
    try:
        return from_data(Plan, data, more=True)
    except DataError as error:
        hint = "write it again with `twofold plan SPEC --out FILE`"
        raise InputError(f"this plan is broken at `{error.path}`", hint=hint) from error


Axis = Literal["fabric", "nodes", "context", "size", "format", "tenancy"]


def compare(
    spec: SpecSource, ladder: Axis | None = None, today: date | None = None
) -> ShownData[Comparison | Ladders]:
    """The 2×2 of a spec's halves on each other's fleets; with `ladder` the tables of one axis.

    Raises InputError for a spec that cannot be planned as written, InfeasibleError when nothing meets it.
    """
    own = ready(spec, today)
    if ladder:
        made = replace(own, options=replace(own.options, in_full=False)).planned()
        along = compare_along(ladder, made.runs, made.services, made.context)
        return ShownData(along, tuple(comparison_lines(along)))
    halves = compare_halves(own.planned().plan)
    return ShownData(halves, tuple(comparison_lines(halves)))


def search_fleets(spec: SpecSource, today: date | None = None) -> ShownPlan:
    """The cheapest fleet that meets every class of each service of a spec, and why the others lost.

    Its training is left out. Raises InfeasibleError, with what binds, when nothing meets a service's goals.
    """
    own = ready(spec, today)
    if not own.spec.services:
        raise EmptyError("the spec has no service", hint="write `serving:`")
    return ShownPlan.of(replace(own, spec=own.spec.model_copy(update={"training": ()})).planned().plan)
