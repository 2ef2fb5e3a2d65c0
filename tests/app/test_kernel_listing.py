from twofold.app import kernels


def test_every_engine_answers_for_every_operation_and_format() -> None:
    found = kernels("l40s").kernels
    works = {(kernel.operation, kernel.format) for kernel in found}
    engines = {kernel.engine for kernel in found}
    assert len(found) == len(works) * len(engines)
    assert {"attention", "gemm", "norm"} == {operation for operation, _ in works}


def test_only_a_fallback_has_a_slowdown_and_it_is_measured() -> None:
    for kernel in (*kernels("a100-80gb").kernels, *kernels("t4").kernels):
        assert (kernel.slowdown is not None) == (kernel.support == "fallback")
        if kernel.slowdown:
            assert kernel.slowdown.source == "f"
            assert 1 <= kernel.slowdown.low <= kernel.slowdown.value <= kernel.slowdown.high


def test_the_matrix_fits_a_screen_and_shows_each_kind_of_support() -> None:
    text = kernels("a100-80gb").lines
    assert max(map(len, text)) <= 100
    assert all(word in "\n".join(text) for word in ("native", "fallback ×", "–"))
