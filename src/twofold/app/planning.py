"""`plan`, `explain` and `diff`: a spec becomes a plan, a plan tells where a number comes from."""

from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

from twofold.app.shown import Difference, Explanation, ShownPlan, shown_plan
from twofold.app.sources import SpecSource, load
from twofold.contracts import Plan, plan_to_dict, read_plan
from twofold.perf import load_constants
from twofold.plan import PlanOptions, build_plan
from twofold.plan import diff as changes
from twofold.plan import explain as explanation

PlanSource = Plan | Path | str | Mapping[str, Any]


def plan(spec: SpecSource, today: date | None = None) -> ShownPlan:
    """Plan both halves of a spec: a path, YAML text, a mapping, or a Spec.

    With `today`, prices older than twelve months are warned of. Raises InputError for a spec that cannot be
    planned as written, InfeasibleError when nothing meets it.
    """
    loaded = load(spec)
    options = PlanOptions(today=today)
    built = build_plan(
        loaded.spec, loaded.catalog, load_constants(), spec_digest=loaded.digest, options=options
    )
    return shown_plan(built)


def explain(plan: PlanSource, path: str) -> Explanation:
    """The derivation of one number of a plan, such as `training.pretrain.step_s`, down to catalogue rows."""
    return Explanation(path, explanation(_as_data(plan), path))


def diff(old: PlanSource, new: PlanSource) -> Difference:
    """What changed between two plans; a Difference that is false when nothing did."""
    return Difference(changes(_as_data(old), _as_data(new)))


def _as_data(source: PlanSource) -> dict[str, Any]:
    if isinstance(source, Plan):
        data: dict[str, Any] = plan_to_dict(source)
        return data
    return dict(source) if isinstance(source, Mapping) else read_plan(Path(source))
