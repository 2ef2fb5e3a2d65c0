"""What the accelerator-hours of a run buy: the loss that it is expected to end at, and its last day."""

from collections.abc import Iterator
from datetime import date, timedelta
from math import ceil, isfinite

from twofold.catalog.types import Model
from twofold.contracts.results import training
from twofold.contracts.results.plan import Input
from twofold.contracts.spec.training_run import TrainingRun
from twofold.core import record
from twofold.core.display import format_estimate, format_si
from twofold.core.estimate import Estimate, Source
from twofold.core.quantity import DAY_S
from twofold.perf import loss_law
from twofold.perf.constants import Constants

NATS = "nats/token"


def delivery(
    entry: TrainingRun, model: Model | None, ends_s: Estimate, constants: Constants
) -> training.Delivery:
    """The loss by published laws, of pretraining alone, and the last day where the spec names a first one."""
    laws, target = loss_law.loss_laws(constants), entry.loss_target
    is_predicted = model is not None and entry.kind == "pretrain"
    loss = expected_loss(model, entry.token_count, laws) if model and is_predicted else None
    needed = tokens_for(model, target, laws) if model and loss and target is not None else None
    return training.Delivery(
        loss=loss,
        loss_target_nats=target,
        loss_target_met=None if loss is None or target is None else loss.value <= target,
        target_tokens=needed,
        ends_on=_last_day(entry.first_day, ends_s.value),
        ends_by=_last_day(entry.first_day, ends_s.high),
    )


def expected_loss(model: Model, token_count: float, laws: tuple[loss_law.LossLaw, ...]) -> Estimate:
    """The first law's loss, in the range of all; assumed where model or data are not like those of the laws.

    A mixture of experts is taken for a dense model of the parameters that each token meets. That is too high
    a loss, since those that it does not meet help too.
    """
    found = [law.loss_nats(model.parameters_active, token_count) for law in laws]
    is_like = _is_like(model) and loss_law.FITTED_TOKENS[0] <= token_count <= loss_law.FITTED_TOKENS[1]
    source = Source.FITTED if is_like else Source.ASSUMED
    loss = Estimate(found[0], min(found), max(found), NATS, source)
    said = "entropy of text + what size leaves + what data leave, by each law; the middle by the first"
    return record.note("delivery.loss", loss, said, "parameters_active", "tokens", "laws")


def tokens_for(model: Model, target_nats: float, laws: tuple[loss_law.LossLaw, ...]) -> Estimate | None:
    """Tokens that end at the target; None where by one of the laws no number of them does."""
    found = [law.tokens_for(target_nats, model.parameters_active) for law in laws]
    if not all(map(isfinite, found)):
        return None
    source = (
        Source.FITTED if _is_like(model) and _within(found[0], loss_law.FITTED_TOKENS) else Source.ASSUMED
    )
    needed = Estimate(found[0], min(found), max(found), "tok", source)
    said = "the tokens at which each law, of this model, ends at the target"
    return record.note("delivery.target_tokens", needed, said, "loss_target", "parameters_active", "laws")


def loss_warnings(delivered: training.Delivery, entry: TrainingRun) -> Iterator[str]:
    """That the target is not reached, and what would reach it."""
    loss, target, needed = delivered.loss, delivered.loss_target_nats, delivered.target_tokens
    if loss is None or target is None or delivered.loss_target_met:
        return
    ends = f"{format_si(entry.token_count, 'tok')} end at a loss of {format_si(loss.value, NATS)}"
    if needed is None:
        yield f"{ends} by scaling laws: no number of tokens brings this model to {target:g}, a larger one may"
    else:
        yield f"{ends} by scaling laws, over the target of {target:g}, reached at {format_estimate(needed)}"


def law_leaves(constants: Constants) -> tuple[Input, ...]:
    """Each law as people write it, and where it stands."""
    leaves = []
    for name, law in zip(loss_law.LAWS, loss_law.loss_laws(constants), strict=True):
        row = constants.row("loss_entropy_nats", law=name)
        size = f"{law.parameters_nats:g}/N^{law.parameters_exponent:g}"
        data = f"{law.tokens_nats:g}/D^{law.tokens_exponent:g}"
        where = f"constants.csv loss_* {row.scope}, {row.rows} rows"
        leaves.append(Input(name, f"{law.entropy_nats:g} + {size} + {data}", "", row.source.value, where))
    return tuple(leaves)


def _is_like(model: Model) -> bool:
    is_dense = model.parameters_active == model.parameters
    return is_dense and _within(model.parameters, loss_law.FITTED_PARAMETERS)


def _within(value: float, ends: tuple[float, float]) -> bool:
    return ends[0] <= value <= ends[1]


def _last_day(first: date | None, seconds: float) -> date | None:
    """The day on which so many seconds from the beginning of the first one are over."""
    if first is None:
        return None
    try:
        return first + timedelta(days=max(0, ceil(seconds / DAY_S) - 1))
    except OverflowError:  # beyond the calendar
        return date.max
