"""From steps of small models to what software adds on this machine: a training framework, a serving engine.

Kernels and links are those that `device_fit` found: only times of the host, passes that eager code makes, and
what a step loses against kernels alone are free here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from twofold.answer import loads
from twofold.answer.stacks import engine_on, stack_on
from twofold.catalog.types import Model
from twofold.core.estimate import Source
from twofold.device import fit
from twofold.device.cases import HEAD_DIM, LONG_ANSWER_TOKENS, SERVED_VOCAB, Sample, Stack, suite_for
from twofold.device.search import Array, Unknown, Values, fit_logs, spread_log
from twofold.inference.replica import Engine, Replica, replica_of
from twofold.perf.constants import ConstantRow, Constants
from twofold.perf.shape import ModelShape
from twofold.perf.types import Cluster
from twofold.training.job import TrainingJob, Workload
from twofold.training.layouts import Layouts, layouts_of
from twofold.training.search import candidate
from twofold.training.stack import Stack as Software

LEAST_FIRST_TOKEN_S = 1e-4
LEAST_UNSEEN_LOG = 0.15  # few stacks tell little about others, and no day is like another
FRAMEWORK, SOFTWARE = "torchtitan", "fsdp"
ENGINE = "transformers"
TRAINING = (
    Unknown("training_host_layer_s", 5e-3, 2.0, 1e-6, 1.0),
    Unknown("training_host_step_s", 1e-2, 2.0, 1e-6, 1.0),
    Unknown("training_kernel_factor", 1.05, 0.15, 0.7, 4.0),
    Unknown("training_elementwise_factor", 2.0, 1.0, 0.05, 40.0),
    Unknown("training_sharded_dp_factor", 1.3, 0.7, 0.3, 20.0),
    Unknown("training_optimizer_bytes_factor", 3.0, 1.5, 0.1, 100.0),
)
# The update walks over the weights of every layer: part of the layer's time of the host, found apart.
UPDATE_LAYER = Unknown("update_layer_s", 5e-3, 2.0, 1e-6, 1.0)
SERVING = (
    Unknown("serving_host_step_s", 3e-3, 2.0, 1e-6, 1.0),
    Unknown("serving_host_layer_s", 1e-3, 2.0, 1e-7, 1.0),
    Unknown("serving_host_sequence_s", 3e-4, 2.0, 1e-7, 1.0),
)
# What an engine without graphs or kernels of its own does not gain; what cannot hide on one's own cores.
PLAIN_ENGINE = {
    "serving_launch_factor": 1.0,
    "serving_weight_read_gain": 1.0,
    "serving_device_factor": 1.0,
    "serving_attention_factor": 1.0,
    "serving_prefill_factor": 1.0,
    "serving_prefill_layer_s": 0.0,
    "serving_first_token_steps": 0.0,
}
NOTHING_HIDDEN = {"training_dp_overlap_fraction": 0.0}
NOTHING_REPEATED = {"training_attention_factor": 1.0}  # causal attention was measured as it is


@dataclass(frozen=True, slots=True)
class _Cases:
    """Training cases as the models want them, with what was measured: steps, then their updates."""

    work: Workload
    layouts: Layouts
    measured_s: Array  # forward and backward of every case, then the update of every case

    def take(self, keep: Sequence[int]) -> "_Cases":
        count = len(self.layouts)
        index = np.array(keep)
        taken = {f.name: np.asarray(getattr(self.work, f.name))[index] for f in fields(Workload)}
        measured_s = np.concatenate([self.measured_s[index], self.measured_s[count + index]])
        return _Cases(Workload(**taken), self.layouts.take(index), measured_s)


def fit_training(samples: Sequence[Sample], cluster: Cluster, constants: Constants) -> fit.FittedPart | None:
    """The framework's constants, and how far off a stack is that the fit did not see; None without steps."""
    if not fit.of_group(samples, "train"):
        return None
    family = cluster.device.family
    scope = f"accelerator={cluster.device.name};family={family};software={SOFTWARE}"
    assumed = {**NOTHING_REPEATED, **(NOTHING_HIDDEN if family == "cpu" else {})}
    fixed = tuple(_assumed_row(name, scope, value) for name, value in assumed.items())
    fmt = suite_for(family).format
    _, software = stack_on(cluster, FRAMEWORK, fmt, constants.with_rows(fixed))
    cases = _training_cases(samples, cluster.accelerator_count, fmt)
    values = _fit_cases(cases, cluster, software)
    errors_log = np.log(_step_parts_s(cases, cluster, software, values) / cases.measured_s)
    host_layer_s = values["training_host_layer_s"] + values[UPDATE_LAYER.name]
    shipped = {**values, "training_host_layer_s": host_layer_s}
    rows = fit.measured_rows(shipped, scope, errors_log, TRAINING)
    unseen = spread_log(_unseen_errors_log(cases, cluster, software, values), LEAST_UNSEEN_LOG)
    here = f"arch=dense;{scope}"  # narrower than any that ships
    interval = fit.measured_row("interval_training_step_ratio", here, 1.0, unseen, len(cases.layouts))
    return fit.FittedPart((*fixed, *rows, interval), fit.fit_error("training steps", errors_log))


def _assumed_row(name: str, scope: str, value: float) -> ConstantRow:
    row = fit.measured_row(name, scope, value, 0.0, 0)
    return replace(row, source=Source.ASSUMED, note="the software has none")


def _training_cases(samples: Sequence[Sample], rank_count: int, fmt: Any) -> _Cases:
    """All ranks shard every weight and take their own sequences: ZeRO-3, as the steps were run."""
    trained = fit.of_group(samples, "train")
    stacks = [Stack(**{name: int(each.sizes[name]) for name in Stack.__slots__}) for each in trained]
    models = [_llama(each.layers, each.hidden, each.vocab) for each in stacks]
    jobs = [
        TrainingJob(model, "pretrain", each.tokens, each.sequences * rank_count, fmt)
        for model, each in zip(models, stacks, strict=True)
    ]
    rows = [(1, 1, 1, 1, 1, rank_count, 3, each.sequences, 0, 0) for each in stacks]
    measured_s = fit.usual([*trained, *fit.of_group(samples, "update")])
    return _Cases(Workload.stacked([job.workload for job in jobs]), layouts_of(rows), measured_s)


def _llama(layers: int, hidden: int, vocab: int) -> Model:
    """The catalogue's words for what `device_training` builds."""
    shape = Stack(layers, hidden, vocab, 1, 1)
    attention = 2 * hidden * HEAD_DIM * (shape.heads + shape.kv_heads)
    per_layer = attention + 3 * hidden * shape.intermediate
    parameters = layers * per_layer + vocab * hidden
    return Model(
        name="stack",
        family="llama",
        arch="dense",
        parameters=parameters,
        parameters_active=parameters,
        layers=layers,
        hidden=hidden,
        heads=shape.heads,
        kv_heads=shape.kv_heads,
        head_dim=HEAD_DIM,
        ffn_hidden=shape.intermediate,
        ffn_matrices=3,
        vocab=vocab,
        tied_embeddings=True,
        max_context_tokens=1024,
        attention="gqa",
        native_format="fp32",
        softmax_attention_layers=layers,
    )


def _fit_cases(
    cases: _Cases, cluster: Cluster, software: Software, near: Values | None = None
) -> dict[str, float]:
    def predict(values: Values) -> Array:
        return _step_parts_s(cases, cluster, software, values)

    return fit_logs(predict, cases.measured_s, (*TRAINING, UPDATE_LAYER), near)


def _step_parts_s(cases: _Cases, cluster: Cluster, software: Software, values: Values) -> Array:
    """Predicted forward with backward of every case, then predicted updates."""
    named: dict[str, Any] = {each.name.removeprefix("training_"): values[each.name] for each in TRAINING}
    fmt = suite_for(cluster.device.family).format
    step = candidate(cases.work, fmt, cases.layouts, cluster, replace(software, **named)).step
    host_s = values["training_host_step_s"] + values[UPDATE_LAYER.name] * np.asarray(cases.work.layers)
    whole_s = np.asarray(step.total_s, float) - np.asarray(step.optimizer_s) - values["training_host_step_s"]
    return np.concatenate([whole_s, np.asarray(step.optimizer_s, float) + host_s])


def _unseen_errors_log(cases: _Cases, cluster: Cluster, software: Software, found: Values) -> Array:
    """Errors of whole steps, each under constants fitted to all other stacks; `found` are those of all."""
    count = len(cases.layouts)
    errors = []
    for left_out in range(count):
        others = cases.take([i for i in range(count) if i != left_out])
        values = _fit_cases(others, cluster, software, found)
        one = cases.take([left_out])
        predicted_s = _step_parts_s(one, cluster, software, values)
        errors.append(np.log(predicted_s.sum() / one.measured_s.sum()))
    return np.array(errors)


def fit_serving(samples: Sequence[Sample], cluster: Cluster, constants: Constants) -> fit.FittedPart | None:
    """The engine's constants; None where none was served."""
    steps, first = fit.of_group(samples, "step"), fit.of_group(samples, "first")
    if not steps:
        return None
    family = cluster.device.family
    scope = f"accelerator={cluster.device.name};engine={ENGINE};family={family}"
    fixed = tuple(_assumed_row(name, scope, value) for name, value in PLAIN_ENGINE.items())
    fmt = suite_for(family).format
    _, plain = engine_on(cluster, ENGINE, constants.with_rows(fixed), weights_format=fmt)
    measured_s = fit.usual(steps)
    requests, context = fit.column(steps, "requests"), fit.column(steps, "prompt") + LONG_ANSWER_TOKENS / 2

    def predict(values: Values) -> Array:
        replica = _replicas(steps, cluster, _driven(plain, values))
        return np.asarray(loads.decode_step(replica, requests, context).total_s, float)

    values = fit_logs(predict, measured_s, SERVING)
    errors_log = np.log(predict(values) / measured_s)
    spread = max(spread_log(errors_log, fit.LEAST_SPREAD_LOG), 0.3)
    rows = fit.measured_rows(values, scope, errors_log, SERVING)
    waiting_s = _first_token_s(first, cluster, _driven(plain, values))
    waiting = fit.measured_row("serving_first_token_s", scope, waiting_s, spread, len(first))
    return fit.FittedPart((*fixed, *rows, waiting), fit.fit_error("serving steps", errors_log))


def _driven(plain: Engine, values: Mapping[str, float]) -> Engine:
    named: dict[str, Any] = {name.removeprefix("serving_"): value for name, value in values.items()}
    return replace(plain, **named)


def _replicas(samples: Sequence[Sample], cluster: Cluster, software: Engine) -> Replica:
    """The replica of every case: one whose shape is an array over them."""
    models = [_llama(int(each.sizes["layers"]), int(each.sizes["hidden"]), SERVED_VOCAB) for each in samples]
    shape = ModelShape.stacked([ModelShape.of(model) for model in models])
    fmt = suite_for(cluster.device.family).format
    return replica_of(shape, replace(cluster, accelerator_count=1), software, fmt, fmt)


def _first_token_s(first: Sequence[Sample], cluster: Cluster, software: Engine) -> float:
    """What a lone request waits beside its prefill: the parsing and the first words of its stream."""
    lone = [each for each in first if each.sizes["requests"] == 1]
    prompt = fit.column(lone, "prompt")
    prefill = loads.prefill_step(_replicas(lone, cluster, software), prompt)
    left_s = fit.usual(lone) - prefill.total_s
    return max(float(np.median(left_s)), LEAST_FIRST_TOKEN_S)
