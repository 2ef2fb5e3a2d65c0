"""Which operation runs in which number format on this machine is tried, not looked up."""

from collections.abc import Callable
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from twofold.app.measuring import MeasuredDevice
from twofold.device.cases import KERNEL, PHASES, Sample, pooled
from twofold.device.figures import format_figures
from twofold.device.files import DeviceRecord, Identity

RECORD = DeviceRecord("this-machine", date(2026, 1, 1), Identity("one", 2, 1 << 34), "torch", 1, 60.0, (), "")


def test_r_046_products_attention_and_norms_are_run_in_each_format_or_have_no_kernel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch = pytest.importorskip("torch", reason="needs the extra [train]: `make extras`")
    from twofold.device import formats
    from twofold.device.kernels import Bench

    monkeypatch.setattr(formats, "FORMAT_WIDTHS", (64, 64))
    told = list(formats.format_samples(Bench(torch.device("cpu"), 0, 1)))
    samples = pooled(told)
    assert len(samples) == len(formats.OPERATIONS) * len(PHASES) * len(formats.FORMATS)
    assert len(told) == formats.ROUNDS * len(samples)
    ran = {(each.sizes["kernel"], each.sizes["format"]) for each in samples if each.seconds}
    assert ran >= {(name, fmt) for name in formats.OPERATIONS for fmt in ("fp32", "bf16")}
    kernels, missing = format_figures(samples, "cpu")
    assert "norm of decode in int8" in missing
    assert all(0.0 < each.low <= each.value <= each.high for each in kernels)
    assert len(kernels) + len(missing) == len(samples) - len(formats.OPERATIONS) * len(PHASES)


def _sample(fmt: str, *seconds: float) -> Sample:
    return Sample(KERNEL, {"kernel": "gemm", "phase": "prompts", "format": fmt}, seconds)


def test_a_format_is_timed_over_the_usual_one_and_what_raised_has_no_kernel() -> None:
    samples = [_sample("fp32", 1.0, 1.0, 2.0), _sample("fp16", 14.0, 14.0), _sample("fp8")]
    kernels, missing = format_figures(samples, "cpu")
    (one,) = kernels
    assert one.low < 8.0 and one.high == 14.0  # a slow moment of the usual one is in the range too
    assert (one.group, one.name, one.value, one.unit) == ("gemm", "prompts in fp16, over fp32", 14.0, "ratio")
    assert missing == ("gemm of prompts in fp8",)
    shown = MeasuredDevice(replace(RECORD, kernels=kernels, missing=missing), Path()).lines
    assert any("prompts in fp16, over fp32" in line and "×14.00" in line for line in shown)
    assert any(line.split() == ["NO", "KERNEL", "gemm", "of", "prompts", "in", "fp8"] for line in shown)
    assert format_figures(samples[1:], "cpu") == ((), missing)  # nothing usual to hold it against


@pytest.mark.parametrize("error", [RuntimeError, NotImplementedError])
def test_an_operation_that_raises_is_one_without_a_kernel(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch", reason="needs the extra [train]: `make extras`")
    from twofold.device import formats
    from twofold.device.kernels import Bench

    def raises(*_: object) -> Callable[[], object]:
        raise error("not implemented for 'Half'")

    monkeypatch.setattr(formats, "OPERATIONS", {"gemm": raises})
    samples = list(formats.format_samples(Bench(torch.device("cpu"), 0, 1)))
    assert len(samples) == formats.ROUNDS * len(PHASES) * len(formats.FORMATS)
    assert not any(each.seconds for each in samples)
