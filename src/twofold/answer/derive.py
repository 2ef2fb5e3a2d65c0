"""Where every number of a plan comes from: one derivation per estimate, each ending in leaves."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from twofold.answer.context import Context
from twofold.answer.cross import PLANNED
from twofold.answer.derivation import SPEC, Noted, assumed_leaf, figures_of, path_input
from twofold.answer.derive_serving import measured_serving_derivations, serving_derivations
from twofold.answer.derive_training import measured_training_derivations, training_derivations
from twofold.answer.measured_choice import MeasuredChoice
from twofold.answer.serving_choice import ServingChoice
from twofold.answer.training_choice import TrainingChoice
from twofold.contracts.results.plan import CrossCell, Derivation, Input
from twofold.contracts.results.serving import ServicePlan
from twofold.contracts.results.training import TrainingPlan
from twofold.core import record
from twofold.core.estimate import Estimate, Source


def derivations(
    runs: Sequence[tuple[TrainingChoice | MeasuredChoice, TrainingPlan]],
    services: Sequence[ServicePlan],
    choices: Mapping[str, ServingChoice],
    cross: Sequence[CrossCell],
    books: Mapping[str, record.Book],
    context: Context,
) -> tuple[Derivation, ...]:
    """The derivations of a whole plan; `choices` are those of its services that are not measured.

    `books` hold what was noted while its figures were computed, by their path.
    """
    found: list[Derivation] = []
    for choice, run in sorted(runs, key=lambda each: isinstance(each[0], MeasuredChoice)):  # models first
        book = books[f"training.{run.name}"]
        if isinstance(choice, MeasuredChoice):
            found += measured_training_derivations(choice, run, book, context)
        else:
            found += training_derivations(choice, run, book, context)
    for service in sorted(services, key=lambda each: each.name not in choices):
        book = books[f"serving.{service.name}"]
        if service.name in choices:
            found += serving_derivations(choices[service.name], service, book, context)
        else:
            found += measured_serving_derivations(service, book, context)
    # A cell on its own fleet is the plan's figure; on the other fleet the search was run there.
    known = {}
    for cell in cross:
        searched = f"the same search on the {cell.fleet} fleet"
        known[f"{cell.half}.{cell.name}.{cell.fleet}.search"] = assumed_leaf("search", cell.text, searched)
    for name, kept in books["cross"].items():
        if kept.formula == PLANNED and isinstance(kept.value, Estimate):
            (planned,) = kept.inputs
            known[planned] = path_input(name.rpartition(".")[2], kept.value, planned)
    return (*found, *Noted("cross", books["cross"], figures_of(cross), known).rows())


def default_marked(rows: Sequence[Derivation], defaults: Sequence[tuple[str, str]]) -> tuple[Derivation, ...]:
    """The derivations with what nobody wrote told apart from what the spec says: assumed, by default."""
    nobody = {path for path, _ in defaults}

    def marked(leaf: Input) -> Input:
        if not leaf.reference.startswith(SPEC):
            return leaf
        where = leaf.reference.removeprefix(SPEC)
        parts = re.split("[ ,]", where, maxsplit=1)[0].split(".")
        if not any(".".join(parts[:count]) in nobody for count in range(1, len(parts) + 1)):
            return leaf
        return replace(leaf, source=Source.ASSUMED.value, reference=f"by default {where}")

    return tuple(replace(row, inputs=tuple(map(marked, row.inputs))) for row in rows)
