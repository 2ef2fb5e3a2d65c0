"""`render`: a plan as files that run, on the screen or in a folder."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from twofold.app.planning import Ready, plan_digest
from twofold.app.rendered_folder import write_rendered
from twofold.app.simulate_inputs import Rehearsable, of_what_is_met, opened, staleness
from twofold.app.sources import SpecSource
from twofold.catalog.catalog import Catalog, load_catalog
from twofold.catalog.names import VARIANTS, canonical
from twofold.catalog.types import Accelerator, Model, Node, Partition
from twofold.contracts.results.parts import Machine
from twofold.contracts.results.plan import Plan
from twofold.core.errors import EmptyError, ValueRefusedError
from twofold.rendering.compose import compose_files
from twofold.rendering.files import RenderedFile, Weights, with_lost
from twofold.rendering.given import Given
from twofold.rendering.kubernetes import kubernetes
from twofold.rendering.ray import ray
from twofold.rendering.records import (
    apart,
    models_of,
    readable,
    served_pools,
    with_workers_apart,
)
from twofold.rendering.shell import shell_files
from twofold.rendering.skypilot import skypilot
from twofold.rendering.slurm import slurm_files
from twofold.rendering.trainers import trained_runs
from twofold.rendering.triton import triton
from twofold.report.answers import Shown
from twofold.report.lines import field

INSTEAD = "the bill and rehearsals, which are of pools that do both: this is the choice `disaggregation`"
JOINED = ("shell", "slurm")  # targets that start workers apart, and what joins them
Target = Literal["shell", "compose", "slurm", "kubernetes", "ray", "skypilot", "triton"]


LOST = re.compile(r"^\W*lost: (.+)$", re.MULTILINE)  # what the head of a file says that its target has not


@dataclass(frozen=True, slots=True)
class Rendered(Shown):
    """Files of a plan for one target; `folder` None: they were not written."""

    schema = "twofold/rendering/1"
    target: str
    folder: str | None
    files: tuple[RenderedFile, ...]
    notes: tuple[str, ...] = ()  # what to know of the plan

    @property
    def lines(self) -> list[str]:
        """The files themselves, or what was written; and each note."""
        if self.folder is not None:
            wrote = [f"wrote {self.folder}/{each.path}" for each in self.files]
            told = [(each.path, lost) for each in self.files for lost in LOST.findall(each.text)]
            notes = [*self.notes, *(f"{path} lost: {lost}" for path, lost in told)]
            return [*wrote, *(line for note in notes for line in field("", note))]
        shown = [line for each in self.files for line in (f"# --- {each.path}", each.text.rstrip("\n"), "")]
        return [*(f"# {note}" for note in self.notes), *shown]


def render(
    source: SpecSource | Plan,
    target: Target = "shell",
    out: Path | None = None,
    today: date | None = None,
    disaggregated: bool = False,
    force: bool = False,
) -> Rendered:
    """The files with which a plan runs on a target, into the folder `out` where one is named.

    With `disaggregated` prompts have workers of their own where the plan weighed these, as scripts and jobs
    of Slurm. The same plan gives the same bytes; files that are there and equal are left alone, and those
    that people changed or wrote are replaced only with `force`. Raises InputError for a plan that no file can
    be made of, and FileError where a file would be overwritten or a folder cannot be written. Where nothing
    meets one half, the rest is written, and the InfeasibleError has it as `left`.
    """
    own = opened(source, today)
    ready, refused = of_what_is_met(own)
    given = _given(own, ready)
    if not given.pools and not given.runs:
        raise EmptyError("the plan has nothing that starts", hint="write `serving:` or `training:`")
    if disaggregated:
        given = _parted(given, target)
    lost = [] if not disaggregated else [INSTEAD]
    lost += [f"{each.name}, which nothing meets: {each.message}" for each in ready.plan.infeasible]
    files = tuple(with_lost(each, lost) for each in TARGETS[target](given))
    if out is not None:
        write_rendered(files, out, force)
    made = Rendered(target, None if out is None else str(out), files, staleness(ready))
    if refused is not None:
        refused.left = made
        raise refused
    return made


def _parted(given: Given, target: Target) -> Given:
    """The same with workers for prompts and for answers. Raises ValueRefusedError for other targets."""
    if target not in JOINED:
        what = f"the target `{target}` joins no workers for prompts with those for answers"
        raise ValueRefusedError(what, hint=f"render for {' or '.join(f'`{each}`' for each in JOINED)}")
    pools = with_workers_apart(given.pools)
    apart([*(pool.name for pool in pools), *(run.name for run in given.runs)])
    return replace(given, pools=pools)


def _given(own: Ready | Rehearsable, ready: Rehearsable) -> Given:
    catalog = own.catalog if isinstance(own, Ready) else load_catalog()
    readable(ready.plan)
    plan, described = ready.plan, {each.name: each for each in ready.plan.models}
    models = {name: described.get(name) or catalog.model(name) for name in models_of(plan)}
    pools = served_pools(plan, {name: model.max_context_tokens for name, model in models.items()})
    runs = trained_runs(plan, _families(catalog))
    apart([*(pool.name for pool in pools), *(run.name for run in runs)])
    named = {each.weights: each.pool.model for each in pools if not each.is_own}
    named |= {each.weights: each.run.model for each in runs if not each.is_own}
    formats = {each: _as_named(each, model, models, catalog).native_format for each, model in named.items()}
    weights = _weights({each: model for each, model in named.items() if each not in described}, catalog)
    apart([weights.variable(each) for each in named])
    known, names = catalog.named(Accelerator), {each.machine.accelerator for each in plan.halves}
    devices = {name: known[head] for name in names if (head := name.partition(":")[0]) in known}
    cut = {
        f"{part.accelerator}:{part.profile}": part
        for part in catalog.rows(Partition)
        if f"{part.accelerator}:{part.profile}" in names
    }
    servers = {name for each in plan.halves for name in _servers(each.machine)}
    kept = catalog.named(Node)
    nodes = {name: catalog.node(name) for name in servers if name.partition(":")[0] in kept}
    return Given(plan, plan_digest(plan), pools, runs, weights, formats, models, devices, cut, nodes)


def _servers(machine: Machine) -> tuple[str, ...]:
    return machine.node, *((machine.price.instance,) if machine.price else ())


def _families(catalog: Catalog) -> dict[str, str]:
    """Families of training software by every name that a spec may say."""
    rows = [row for row in catalog.table("aliases").rows if row["kind"] == "framework"]
    return {str(row["alias"]): str(row["name"]) for row in rows}


def _as_named(weights: str, model: str, models: Mapping[str, Model], catalog: Catalog) -> Model:
    """The model of weights; a repository's name tells in which format they are published."""
    return models[model] if weights == model else catalog.model(weights)


def _weights(named: Mapping[str, str], catalog: Catalog) -> Weights:
    """Where weights are, by what they are known by: the repository itself, or a model of the catalogue's."""
    known, said = dict[str, str](), dict[str, str]()
    for weights, model in named.items():
        if weights != model:
            known[weights], said[weights] = weights, "as the spec names it"
        elif found := _repositories(model, catalog):
            known[weights] = found[0]
            other = found[1] if len(found) > 1 else "OWNER/NAME"
            said[weights] = f"of the catalogue for {model}; for another write `model: {other}`"
    return Weights(known, said)


def _repositories(model: str, catalog: Catalog) -> list[str]:
    """The hub's repositories of a model's weights, tuned maybe, that aliases name; the plainest first."""
    wanted = canonical(model)
    names = [
        str(row["alias"])
        for row in catalog.table("aliases").rows
        if row["name"] == model and row["kind"] == "model"
    ]
    found = []
    for name in sorted((each for each in names if each.count("/") == 1), key=len):
        tail = re.sub(rf"[-_]({'|'.join(VARIANTS)})$", "", name.partition("/")[2], flags=re.I)
        found += [name] if canonical(tail) == wanted else []
    return found


TARGETS: Mapping[str, Callable[[Given], tuple[RenderedFile, ...]]] = MappingProxyType(
    {
        "shell": shell_files,
        "compose": compose_files,
        "slurm": slurm_files,
        "kubernetes": kubernetes,
        "ray": ray,
        "skypilot": skypilot,
        "triton": triton,
    }
)
