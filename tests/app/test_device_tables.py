import pytest

from twofold.app.device_tables import kernels, partitions
from twofold.core.errors import InfeasibleError, InputError
from twofold.report.lines import WIDTH


def test_the_legal_profiles_of_a_device_are_listed() -> None:
    found = partitions("h100")
    assert {"1g.10gb", "3g.40gb", "7g.80gb"} <= {one.profile for one in found.profiles}
    assert all(len(line) <= WIDTH for line in found.lines)


@pytest.mark.parametrize("request_text", ["7g.80gb + 1g.10gb", "8x 1g.10gb", "3x 3g.40gb"])
def test_a_mix_that_does_not_fit_is_refused_with_its_reason(request_text: str) -> None:
    with pytest.raises(InfeasibleError) as caught:
        partitions("h100", request_text)
    assert caught.value.lines[0][0] == "reason"


def test_a_mix_that_fits_is_placed_without_overlap() -> None:
    found = partitions("h100", "3x 1g.10gb + 4g.40gb")
    sizes = {one.profile: one.memory_slices for one in found.profiles}
    slices = [place.start + n for place in found.placed for n in range(sizes[place.profile])]
    assert len(found.placed) == 4
    assert len(slices) == len(set(slices))


def test_amd_devices_list_modes_and_their_limits() -> None:
    found = partitions("mi300x")
    assert {"SPX", "CPX"} <= {one.profile for one in found.profiles}
    assert any("NPS4" in line for line in found.lines)
    with pytest.raises(InfeasibleError):
        partitions("mi300x", "SPX + CPX")


def test_a_profile_that_is_none_is_refused() -> None:
    with pytest.raises(InputError):
        partitions("h100", "5g.50gb")


def test_a_device_that_cannot_be_cut_says_so() -> None:
    assert partitions("a10g").lines == ["A10G cannot be partitioned"]


def test_every_engine_answers_for_every_operation_and_format() -> None:
    found = kernels("l40s").kernels
    works = {(kernel.operation, kernel.format) for kernel in found}
    engines = {kernel.engine for kernel in found}
    assert len(found) == len(works) * len(engines)
    assert {"attention", "gemm", "norm"} == {operation for operation, _ in works}


def test_only_a_fallback_has_a_slowdown_and_it_is_measured() -> None:
    for kernel in (*kernels("a100-80gb").kernels, *kernels("t4").kernels):
        falls = kernel.support == "fallback"
        assert [cost is not None for cost in (kernel.slowdown, kernel.decode_slowdown)] == [falls, falls]
        assert (kernel.measured_count > 0) == falls
        for cost in (kernel.slowdown, kernel.decode_slowdown):
            if cost:
                assert cost.source == "f" and 0.2 < cost.low <= cost.value <= cost.high


def test_the_matrix_fits_a_screen_and_shows_each_kind_of_support() -> None:
    text = kernels("a100-80gb").lines
    assert max(map(len, text)) <= 100
    assert all(word in "\n".join(text) for word in ("native", "fallback", "×", "–"))
