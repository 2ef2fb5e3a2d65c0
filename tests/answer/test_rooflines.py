"""Rooflines: planned work lies under the roof, with FLOPs and bytes that another count confirms."""

import pytest

from twofold.contracts.results.plan import Plan


def test_no_planned_work_is_above_the_roof_and_what_was_measured_is_apart(examples: dict[str, Plan]) -> None:
    rooflines = [half.roofline for plan in examples.values() for half in plan.halves if half.roofline]
    assert len(rooflines) >= 8
    for roof in rooflines:
        for each in roof.planned:
            most = min(roof.peak_flops_per_s, each.flops_per_byte * roof.memory_bytes_per_s)
            assert 0.01 * most < each.flops_per_s <= most, (roof.accelerator, each)
            assert not each.source
        assert all(each.source for each in roof.measured)


def test_products_that_decode_do_two_flops_for_each_weight_and_sequence(examples: dict[str, Plan]) -> None:
    """Another way to the same figures: weights are read once, in one byte each, for all that decode."""
    service = examples["finetune"].serving[0]
    assert service.replica.weights_format == "fp8" and service.roofline and service.parameters
    decode, attention, prompt, _ = service.roofline.planned
    assert [each.what for each in service.roofline.planned][::2] == ["products, decode", "products, prompt"]
    # Of the step's decoding sequences: rate × answer × time per token, by Little's law.
    one = service.classes[0]
    per_replica = one.peak_per_s / one.replica_count
    tokens_s = one.percentiles["tpot_p50"].value
    assert one.output_tokens
    sequences = per_replica * one.output_tokens * tokens_s
    assert decode.flops_per_byte == pytest.approx(2.0 * sequences, rel=0.3)
    assert attention.flops_per_byte < decode.flops_per_byte < prompt.flops_per_byte


def test_the_products_of_a_step_are_faster_than_the_whole_step(examples: dict[str, Plan]) -> None:
    """`peak_ratio` counts the FLOPs that a model asks for over the step, with all that takes time beside."""
    seen = 0
    for plan in examples.values():
        for run in plan.training:
            if run.roofline is None or run.peak_ratio is None or run.kind != "pretrain":
                continue
            products = run.roofline.planned[0]
            assert products.what == "products, a step"
            assert products.flops_per_s > run.peak_ratio.value * run.roofline.peak_flops_per_s
            seen += 1
    assert seen >= 3
