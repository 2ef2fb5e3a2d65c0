from twofold.answer.uncertainty import FACTORS
from twofold.contracts.results import Plan


def test_every_unknown_has_its_bar_longest_first(examples: dict[str, Plan]) -> None:
    factors = examples["assistant"].factors
    assert {factor.name for factor in factors} == set(FACTORS)
    swings = [max(factor.step_swing_fraction or 0, factor.tpot_swing_fraction or 0) for factor in factors]
    assert swings == sorted(swings, reverse=True) and swings[0] > 0.02


def test_each_unknown_moves_what_it_is_about(examples: dict[str, Plan]) -> None:
    factors = {factor.name: factor for factor in examples["assistant"].factors}
    assert (factors["compute"].step_swing_fraction or 0) > 0.05
    assert (factors["memory_bandwidth"].tpot_swing_fraction or 0) > 0.02
    swings = (factor for plan in examples.values() for factor in plan.factors if factor.name == "fabric")
    assert any(
        (factor.step_swing_fraction or 0) > 0 for factor in swings
    )  # here and there all of it is hidden
    for name in ("price", "traffic", "failure_rate"):  # they move money and runs, not a step
        assert factors[name].step_swing_fraction == factors[name].tpot_swing_fraction == 0.0


def test_a_missing_half_has_no_bars(examples: dict[str, Plan]) -> None:
    assert all(factor.step_swing_fraction is not None for factor in examples["laptop"].factors)
