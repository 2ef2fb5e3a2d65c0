from bench.fleet_sizes import CASES, fewest, of_size


def test_a_small_fleet_is_of_the_size_asked_for_and_holds_on_the_twin_with_as_many_or_one_fewer():
    choice, plan, context = of_size(CASES[0], 3)
    assert choice.fleet.pools[0].count.needed == 3
    assert 2 <= fewest(choice, plan, context) <= 3
