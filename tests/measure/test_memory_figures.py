import numpy as np
import pytest

from twofold.catalog import load_catalog
from twofold.measure.memory_figures import Counter, counter, printed
from twofold.perf import load_constants
from twofold.training import TrainingJob, layouts_of, load_stack, memory

# What each framework's own log does: known from its code, before any measurement.
CONVENTIONS = [
    ("nanotron", "bf16", "allocated", 1e9),
    ("torchtitan", "bf16", "reserved", 2**30),
    ("Megatron-Bridge 26", "bf16", "allocated", 1e9),
    ("Megatron-Core 0", "bf16", "allocated", 2**30),
    ("Megatron-DeepSpeed", "fp16", "device", 1e9),
    ("never heard of", "bf16", "reserved", 2**30),
]


@pytest.mark.parametrize(("framework", "precision", "counts", "unit_bytes"), CONVENTIONS)
def test_each_framework_prints_its_own_counter(
    framework: str, precision: str, counts: str, unit_bytes: float
) -> None:
    assert counter(framework, precision) == Counter(counts, unit_bytes)  # type: ignore[arg-type]


def test_a_narrower_counter_or_a_larger_unit_prints_less() -> None:
    job = TrainingJob(load_catalog().model("llama-3.1-8b"), "pretrain", 4096, 64)
    held = memory(job, layouts_of([(4, 1, 1, 2, 1, 8, 1, 1, 0, 1)]), load_stack(load_constants(), "nemo"))
    numbers = [printed(held, Counter(counts, 1e9)) for counts in ("allocated", "reserved", "device")]
    assert np.all(np.diff(np.ravel(numbers)) > 0)
    assert printed(held, Counter("device", 2**30)) == pytest.approx(numbers[-1] * 1e9 / 2**30)
