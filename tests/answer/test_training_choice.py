from collections.abc import Callable

from twofold.contracts.results.plan import Plan
from twofold.core.errors import InfeasibleError

TRAIN = """
name: t
model: llama-3.1-8b
training:
  tokens: 100 Gtok
  global_batch: 512 seq
  deadline: 20 d
supply: {shop: {accelerators: [H100-SXM, A100-80GB-SXM, L40S]}}
"""
Planned = Callable[[str], Plan]


def test_the_cheapest_machine_on_time_is_chosen(planned: Planned) -> None:
    """With the file system that it rents as long as it lasts: the cheapest nodes alone may be too slow."""
    plan = planned(TRAIN)
    (run,) = plan.training
    assert plan.money and run.cost_usd
    (store,) = [line.total_usd for line in plan.money.lines if "file system" in line.what]
    beside = store / run.run.total_s.value
    costs = [
        point.cost_usd + beside * point.wall_s for point in run.front if point.feasible and point.cost_usd
    ]
    assert run.cost_usd.value + store <= min(costs) * 1.001
    assert run.deadline_s and run.run.total_s.value <= run.deadline_s
    assert run.losers and all(loser.why for loser in run.losers)


def test_a_tighter_deadline_takes_more_machines(planned: Planned) -> None:
    loose = planned(TRAIN).training[0]
    tight = planned(TRAIN.replace("deadline: 20 d", "deadline: 4 d")).training[0]
    assert tight.machine.accelerator_count > loose.machine.accelerator_count
    assert tight.run.total_s.value <= 4 * 86400


def test_efficiency_is_known_up_to_the_chosen_size(planned: Planned) -> None:
    run = planned(TRAIN).training[0]
    assert [point.accelerator_count for point in run.scaling] == [8, 32]
    assert run.machine.accelerator_count == 32
    assert run.scaling[0].efficiency_fraction.value == 1
    assert all(point.efficiency_fraction.value > 0 for point in run.scaling)


def test_no_point_of_the_front_beats_another(planned: Planned) -> None:
    front = planned(TRAIN).training[0].front
    axes = [(point.wall_s, point.cost_usd or 0.0, point.accelerator_count) for point in front]
    assert axes == sorted(axes)
    for mine in axes:
        beating = [
            other for other in axes if other != mine and all(a <= b for a, b in zip(other, mine, strict=True))
        ]
        assert beating == []


def test_without_a_deadline_the_size_is_said_to_be_assumed(planned: Planned) -> None:
    run = planned(TRAIN.replace("  deadline: 20 d\n", "")).training[0]
    assert any("no deadline" in warning for warning in run.warnings)
    assert run.run.total_s.value <= 40 * 86400


def test_machines_that_do_not_suffice_are_named_with_what_they_miss(planned: Planned) -> None:
    on = TRAIN.replace("  deadline: 20 d\n", "  deadline: 20 d\n  on: 8x8xH100-SXM\n")
    run = planned(on).training[0]
    assert run.losers[0].what == "4 × 8 H100-SXM5-80GB"
    assert "%" in run.losers[0].why or "misses" in run.losers[0].why


def test_scaling_begins_at_the_smallest_size_that_fits(planned: Planned) -> None:
    scaling = planned(TRAIN.replace("  deadline: 20 d\n", "  on: 64x8xH100-SXM\n")).training[0].scaling
    counts = [point.accelerator_count for point in scaling]
    assert counts == sorted(counts) and counts[-1] == 512 and len(counts) >= 3
    assert scaling[0].efficiency_fraction.value == 1.0
    assert all(point.efficiency_fraction.low < point.efficiency_fraction.high for point in scaling[1:])


def test_the_size_that_would_be_on_time_is_on_time(
    planned: Planned, refused: Callable[[str], InfeasibleError]
) -> None:
    text = "model: llama-3.1-8b\ntraining: {tokens: 300 Gtok, deadline: 4 d, on: 1x8xH100-SXM}\n"
    count = int(dict(refused(text).lines)["would fit"].split()[0].replace(",", ""))
    assert planned(text.replace("1x8", f"{count}x8")).training[0].machine.node_count == count


def test_no_size_is_offered_where_more_nodes_do_not_help(refused: Callable[[str], InfeasibleError]) -> None:
    text = "model: llama-3.1-8b\ntraining: {tokens: 300 Gtok, deadline: 20 d, global_batch: 1 seq}\n"
    assert "nodes of" not in dict(refused(text).lines)["would fit"]


def test_what_keeps_less_for_each_weight_is_offered_where_it_fits(
    planned: Planned, refused: Callable[[str], InfeasibleError]
) -> None:
    run = "{kind: KIND, tokens: 100 Mtok, global_batch: 8 seq, on: 1x8xH100-SXM}"
    text = f"model: llama-3.1-70b\ntraining: {run}\n"
    assert "`kind: lora`" in dict(refused(text.replace("KIND", "finetune")).lines)["would fit"]
    assert planned(text.replace("KIND", "lora")).training[0].machine.node_count == 1
    text = text.replace("llama-3.1-70b", "llama-3.1-405b")
    assert "lora" not in dict(refused(text.replace("KIND", "finetune")).lines)["would fit"]
