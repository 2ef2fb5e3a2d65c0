"""No range crosses physics, for any model of the catalogue: bytes over bandwidth, FLOPs over peak."""

import pytest
from hypothesis import assume, settings
from hypothesis import given as examples
from hypothesis import strategies as st

from twofold.answer.question import Variation, given
from twofold.answer.quick_serve import ServingQuestion
from twofold.answer.ranges import Drawn
from twofold.answer.serve_answer import estimate_serving
from twofold.answer.training_estimate import TrainingQuestion, estimate_training
from twofold.catalog.catalog import load_catalog
from twofold.catalog.types import Model
from twofold.core.errors import InfeasibleError, InputError, TwofoldError
from twofold.perf.constants import load_constants
from twofold.training.job import TrainingJob

CATALOG, CONSTANTS = load_catalog(), load_constants()
MODELS = sorted(row.name for row in CATALOG.rows(Model) if row.heads and row.layers)
MACHINES = ("8xH100-SXM", "8xH200", "8xB200", "8xMI300X", "8xL40S", "1xH100-SXM")
SIXTEEN_BITS = 2.0


@examples(st.sampled_from(MODELS), st.sampled_from(MACHINES), st.sampled_from((1, 8, 64, 512)))
@settings(max_examples=60, deadline=None)
def test_no_range_of_serving_crosses_what_must_be_read_and_computed(name: str, on: str, clients: int) -> None:
    model = CATALOG.model(name)
    machines = given(on, CATALOG, CONSTANTS, Variation())
    try:
        question = ServingQuestion(model, machines, 1000, 200, concurrency=clients)
        answer = estimate_serving(question, CONSTANTS)
    except TwofoldError:
        assume(False)
    device, count = machines.cluster.device, answer.replica.accelerator_count
    # By hand, and less than what is counted: one token's weights without the tables of words, in 16 bits.
    words = 2 * model.vocab * model.hidden
    least_bytes = SIXTEEN_BITS * max(model.parameters_active - words, 0) * 0.75  # towers and the like apart
    tpot = answer.percentiles["tpot_p50"]
    assert tpot.low >= least_bytes / count / device.memory_bytes_per_s
    assert answer.step_s.low >= least_bytes / count / device.memory_bytes_per_s
    peak = max(device.peak_flops_per_s.values()) * count
    flops = 2 * max(model.parameters_active - words, 0) * 0.75
    assert answer.percentiles["ttft_p50"].low >= flops * 1000 / peak
    assert answer.output_tokens_per_s.high <= peak / (flops * 6) if flops else True  # 1,000 in for 200 out
    assert answer.output_tokens_per_s.high <= clients / tpot.low * 1.5


@examples(st.sampled_from(MODELS), st.sampled_from(("4x8xH100-SXM", "8x8xB200", "8x8xMI300X")))
@settings(max_examples=30, deadline=None)
def test_no_range_of_a_step_is_below_its_flops_at_the_peak(name: str, on: str) -> None:
    machines = given(on, CATALOG, CONSTANTS, Variation())
    job = TrainingJob(CATALOG.model(name), "pretrain", 4096, 256)
    try:
        answer = estimate_training(TrainingQuestion(job, machines, {}, None, ranked=3), CONSTANTS)
    except (InfeasibleError, InputError):
        assume(False)
    peak = machines.cluster.device.peak_flops_per_s["bf16"] * machines.machine.accelerator_count
    for step in (answer.step_s, *(row.step_s for row in answer.layouts)):
        assert step.low >= answer.model_flops / peak
    assert answer.mfu_fraction.high <= 1.0 + 1e-9


def test_what_is_cut_keeps_its_middle_and_its_order() -> None:
    import numpy as np

    wide = Drawn(61.0, 61.0 * np.exp(np.linspace(-1.2, 1.2, 200)))
    cut = wide.within(53.0)
    assert cut.estimate("s").low == 53.0 and cut.estimate("s").high == pytest.approx(wide.estimate("s").high)
    assert np.all(np.diff(cut.samples) >= 0)
    assert wide.within(70.0).estimate("s").low == 61.0  # the middle itself is never cut
    assert wide.within(most=50.0).estimate("s").high == 61.0
