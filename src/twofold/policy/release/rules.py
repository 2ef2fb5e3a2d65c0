"""The rules that a release passes: what each looks at, what it refuses, and what would pass.

A rule is a pure function of the candidate, of what serves now, and of the limits. All are asked, so that who
releases sees every refusal at once. A figure that nobody measured refuses as well: a gate that opens when it
is not told is none. R-045, R-163 and R-178 are decided here.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType

from twofold.core.display import format_bytes, format_seconds


@dataclass(frozen=True, slots=True)
class TaskScore:
    """How many questions of a task set were answered right. Scores of two sets are not compared."""

    name: str
    set_sha256: str
    right_fraction: float
    question_count: int


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What was measured of one model, on one set and one engine; None: it was not."""

    set_sha256: str  # of the evaluation set: figures of two sets are not compared
    token_count: int  # that were predicted
    loss_nats: float  # mean of -ln p(token), per token
    calibration_error_fraction: float | None = None  # mean distance of confidence and accuracy over ten bins
    drift_nats: float | None = None  # mean KL divergence from what serves now, per token
    failed_slices: tuple[str, ...] = ()  # of the regression set: those that got worse by more than allowed
    ttft_p95_s: float | None = None  # on the engine that will serve
    tpot_p95_s: float | None = None
    memory_bytes: float | None = None  # of the weights, as that engine holds them
    engine: str = ""
    beside: str = ""  # the digest of the model that drift and slices were measured against; "": of none
    tasks: tuple[TaskScore, ...] = ()


@dataclass(frozen=True, slots=True)
class Release:
    """A version as the rules see it. `evaluation` None: it was never evaluated."""

    digest: str
    sealed: bool  # by the registry's key
    tokenizer_sha256: str
    formats: tuple[str, ...]  # that its weights are stored in
    pushed_by: str
    approved_by: tuple[str, ...] = ()
    evaluation: Evaluation | None = None
    quantised_from: str = ""  # the digest of the model that it is a smaller copy of
    before_quantised: Evaluation | None = None  # of that model
    parent: str = ""  # the digest of the model that it was made from
    run: str = ""  # the digest of the training that it came out of
    weights_sha256: str = ""
    signed: bool = False  # by the key that the limits name
    architecture: str = ""  # as its configuration names it; "": it does not
    context_tokens: int = 0  # prompt and answer together; 0: its configuration does not say


UNITS: Mapping[str, Callable[[float], str]] = MappingProxyType(
    {
        "s": format_seconds,
        "bytes": format_bytes,
        "fraction": lambda value: f"{100 * value:.3g} %",
        "nats": lambda value: f"{value:g} nats",
        "least": lambda value: f"at least {value:,}",
    }
)
"""How a limit is said, by the unit at the end of its name."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a release must keep. None: not asked for."""

    loss_rise_fraction: float | None = 0.01  # of the loss of what serves now
    quantised_rise_fraction: float | None = 0.01  # of the loss of what it was quantised from
    calibration_rise_fraction: float | None = 0.02  # above that of what serves now
    calibration_error_fraction: float | None = None  # whatever serves now
    drift_most_nats: float | None = 0.1  # of what was not trained anew
    task_drop_fraction: float | None = 0.05  # of all questions, below what serves now
    same_run_same_weights: bool = True  # training twice gives equal bytes: others were altered on the way
    ttft_p95_s: float | None = None
    tpot_p95_s: float | None = None
    memory_bytes: float | None = None
    approvals_least: int = 1
    own_approval_counts: bool = False  # of whoever pushed it
    set_sha256: str = ""  # of the evaluation set that counts; "": whichever it was evaluated on
    signed_by: str = ""  # the PEM file of the public key that a signature must fit; "": none is asked for
    same_tokenizer: bool = True
    same_architecture: bool = True
    as_long_context: bool = True  # as that of what serves now, where the service does not say what it needs …
    context_tokens_least: int | None = None  # … and what it needs, where it does
    formats: tuple[str, ...] = ("safetensors", "compressed-tensors")  # that the engine reads
    token_count_least: int = 1000

    @property
    def unusual(self) -> str:
        """Those that are not the usual ones, in words for a log; "" where all are.

        >>> Limits(approvals_least=0, ttft_p95_s=1.0, memory_bytes=12638251008.0).unusual
        'limits: TTFT p95 1 s, memory 13 GB, approvals at least 0'
        """
        usual = Limits()
        found = [
            _limit_text(field.name, value)
            for field in fields(self)
            if (value := getattr(self, field.name)) != getattr(usual, field.name)
        ]
        return f"limits: {', '.join(found)}" if found else ""


def _limit_text(name: str, value: object) -> str:
    """One limit as people say it, by the unit at the end of its name."""
    said, _, unit = name.rpartition("_")
    said = said.replace("_", " ").replace("ttft", "TTFT").replace("tpot", "TPOT")
    if value is None or value is False:
        return f"{said if unit in UNITS else name.replace('_', ' ')} not asked"
    if unit in UNITS and isinstance(value, float | int):
        return f"{said} {UNITS[unit](value)}"
    told = ", ".join(value) if isinstance(value, tuple) else str(value)
    return name.replace("_", " ") + ("" if value is True else f" {told}")


@dataclass(frozen=True, slots=True)
class Refusal:
    """One rule that was not kept."""

    rule: str  # loss, calibration, drift, …
    figure: str  # what was found
    passes: str  # what would pass


def refusals(new: Release, serving: Release | None, limits: Limits) -> tuple[Refusal, ...]:
    """Every rule that `new` breaks, beside what serves now; none when it may be released."""
    return (*_identity(new, serving, limits), *_approval(new, limits), *_figures(new, serving, limits))


def is_copy(new: Release, serving: Release) -> bool:
    """Whether it says to be what serves now, in other numbers or built anew."""
    same_run = bool(new.run) and new.run == serving.run
    return same_run or serving.digest in (new.quantised_from, new.parent)


def _is_other_training(new: Release, serving: Release) -> bool:
    """Whether it is known to come out of another training: then it may say other things."""
    return bool(new.run and serving.run) and new.run != serving.run and not is_copy(new, serving)


def _identity(new: Release, serving: Release | None, limits: Limits) -> Iterator[Refusal]:
    if not new.sealed:
        yield Refusal("seal", "not sealed by this registry's key", "push it from where it was made")
    other = serving is not None and new.tokenizer_sha256 != serving.tokenizer_sha256
    if limits.same_tokenizer and other and serving is not None:
        found = f"tokenizer {new.tokenizer_sha256[:12] or 'none'}"
        yield Refusal(
            "tokenizer", found, f"tokenizer {serving.tokenizer_sha256[:12]}, as what serves now has"
        )
    yield from _shape(new, serving, limits)
    same_run = serving is not None and bool(new.run) and new.run == serving.run and not new.quantised_from
    others = serving is not None and new.weights_sha256 != serving.weights_sha256
    if limits.same_run_same_weights and same_run and others and serving is not None:
        found = f"weights {new.weights_sha256[:12]}, of the run that made {serving.weights_sha256[:12]}"
        yield Refusal("weights", found, "the bytes that the run made, or `--from quantised=`")
    if limits.signed_by and not new.signed:
        yield Refusal("signature", f"not signed by {limits.signed_by}", "`registry sign` by who has that key")
    if not set(new.formats) & set(limits.formats):
        yield Refusal("format", ", ".join(new.formats) or "no weights", f"one of {', '.join(limits.formats)}")


def _shape(new: Release, serving: Release | None, limits: Limits) -> Iterator[Refusal]:
    """What engines and clients count on by name: how it is built, and how long a request may be."""
    wanted = serving.architecture if serving is not None and limits.same_architecture else ""
    if wanted and not _alike(new.architecture, wanted):
        found = f"architecture {new.architecture or 'not told'}"
        yield Refusal("architecture", found, f"architecture {wanted}, as what serves now has")
    least, whose = limits.context_tokens_least, "as the service lets in"
    if least is None and serving is not None:
        least, whose = serving.context_tokens, "as what serves now holds"
    if limits.as_long_context and least and new.context_tokens < least:
        found = f"a context of {new.context_tokens:,} tokens" if new.context_tokens else "no context told"
        yield Refusal("context", found, f"a context of {least:,} tokens, {whose}")


def _alike(one: str, other: str) -> bool:
    """Whether two names are of one architecture: a config without the name of a class tells its kind alone,
    as `llama` is that of `LlamaForCausalLM`."""
    kind, name = sorted((one, other), key=len)
    plain = kind.replace("_", "").replace("-", "")
    return one == other or (bool(kind) and kind == kind.lower() and name.lower().startswith(plain))


def _approval(new: Release, limits: Limits) -> Iterator[Refusal]:
    pushed_by = _person(new.pushed_by)
    people = {_person(who) for who in new.approved_by}
    people -= set() if limits.own_approval_counts else {pushed_by}
    if len(people) < limits.approvals_least:
        own = " besides who pushed it" if not limits.own_approval_counts else ""
        found = f"{len(people)} of {limits.approvals_least} approvals{own}"
        yield Refusal(
            "approval", found, "`registry approve` by somebody else" if own else "`registry approve`"
        )


def _person(name: str) -> str:
    """The same for spellings that people take for one."""
    return " ".join(name.casefold().split())


def _figures(new: Release, serving: Release | None, limits: Limits) -> Iterator[Refusal]:
    found = new.evaluation
    if found is None:
        yield Refusal("evaluation", "never evaluated", "`registry evaluate`")
        return
    if limits.set_sha256 and found.set_sha256 != limits.set_sha256:
        passes = f"`registry evaluate` on {limits.set_sha256[:12]}, which the service names"
        yield Refusal("set", f"evaluated on {found.set_sha256[:12]}", passes)
    if found.token_count < limits.token_count_least:
        yield Refusal("sample", f"{found.token_count:,} tokens", f"{limits.token_count_least:,} tokens")
    if not math.isfinite(found.loss_nats):
        yield Refusal("loss", f"{found.loss_nats} nats per token", "a finite loss")
    elif limits.loss_rise_fraction is not None and serving is not None:
        yield from _loss("loss", "what serves now", found, serving.evaluation, limits.loss_rise_fraction)
    if new.quantised_from and limits.quantised_rise_fraction is not None:
        origin = "what it was quantised from"
        yield from _loss("quantised", origin, found, new.before_quantised, limits.quantised_rise_fraction)
    if found.failed_slices:
        yield Refusal("regression", f"worse at {', '.join(found.failed_slices)}", "no slice that got worse")
    yield from _tasks(found, serving.evaluation if serving else None, limits)
    is_beside = serving is not None and found.beside == serving.digest  # not what served once
    named = (
        ("calibration", found.calibration_error_fraction, _calibration(serving, limits), ""),
        (
            "drift",
            found.drift_nats if is_beside else None,
            limits.drift_most_nats if serving and not _is_other_training(new, serving) else None,
            " nats per token",
        ),
        ("ttft", found.ttft_p95_s, limits.ttft_p95_s, " s at p95"),
        ("tpot", found.tpot_p95_s, limits.tpot_p95_s, " s at p95"),
        ("memory", found.memory_bytes, limits.memory_bytes, " bytes"),
    )
    for rule, figure, most, unit in named:
        if most is None:
            continue
        passes = f"at most {most:.4g}{unit}"
        if figure is None:
            beside = " beside what serves now" if rule == "drift" else ""
            yield Refusal(rule, f"not measured{beside}", passes)
        elif not figure <= most:  # what is no number passes nothing
            yield Refusal(rule, f"{figure:.4g}{unit}", passes)


def _tasks(found: Evaluation, before: Evaluation | None, limits: Limits) -> Iterator[Refusal]:
    """Formula  right_before - right_new <= drop_most, on every task set that what serves now was asked."""
    told = {(each.name, each.set_sha256): each for each in found.tasks}
    for old in before.tasks if before is not None and limits.task_drop_fraction is not None else ():
        least = old.right_fraction - (limits.task_drop_fraction or 0.0)
        passes = f"at least {max(least, 0.0):.1%} right, where what serves now has {old.right_fraction:.1%}"
        new = told.get((old.name, old.set_sha256))
        if new is None:
            yield Refusal("tasks", f"{old.name} not measured", passes)
        elif not new.right_fraction >= least - 1e-9:  # a share is a rounded number
            points = 100.0 * (new.right_fraction - old.right_fraction)
            yield Refusal("tasks", f"{old.name} {new.right_fraction:.1%} right, {points:+.1f} points", passes)


def _calibration(serving: Release | None, limits: Limits) -> float | None:
    """The most that a calibration error may be: as asked for, and so far above that of what serves now."""
    before = serving.evaluation.calibration_error_fraction if serving and serving.evaluation else None
    rise = limits.calibration_rise_fraction
    most = (limits.calibration_error_fraction, None if before is None or rise is None else before + rise)
    return min((each for each in most if each is not None), default=None)


def _loss(
    rule: str, than: str, found: Evaluation, before: Evaluation | None, rise_most: float
) -> Iterator[Refusal]:
    """Formula  loss_new / loss_before - 1 <= rise_most, on one evaluation set."""
    if before is None or before.set_sha256 != found.set_sha256:
        yield Refusal(rule, f"{than} was not evaluated on this set", "both on one set")
        return
    most = before.loss_nats * (1.0 + rise_most)
    if not found.loss_nats <= most:  # what was before may have been no number
        rise = found.loss_nats / before.loss_nats - 1.0 if before.loss_nats else math.inf
        told = f"{found.loss_nats:.4f} nats per token, {rise:+.1%}"
        yield Refusal(rule, told, f"at most {most:.4f}, {rise_most:+.1%} of {than}")
