"""Bytes with their scales, and what runs when the matrix units do not know a format."""

import pytest

from twofold.core.errors import UnknownNameError
from twofold.perf.formats import bytes_per_weight


@pytest.mark.parametrize(
    ("name", "bits"), [("nvfp4", 4.5), ("mxfp4", 4.25), ("int4", 4.25), ("mxfp8", 8.25), ("bf16", 16)]
)
def test_scales_are_counted(name: str, bits: float) -> None:
    assert bytes_per_weight(name) * 8 == bits


def test_a_block_of_fp8_carries_one_scale() -> None:
    assert bytes_per_weight("fp8_block") * 128 * 128 == 128 * 128 + 4


def test_an_unknown_format_is_a_users_mistake_with_a_hint() -> None:
    with pytest.raises(UnknownNameError, match="formats: "):
        bytes_per_weight("fp7")
