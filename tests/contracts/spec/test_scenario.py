"""Scenarios: read with units and places like a spec; what contradicts itself or cannot happen is refused."""

from pathlib import Path

import pytest

from twofold.contracts.spec.scenario import Reading, Scenario, parse_scenario, read_scenario
from twofold.core.errors import FileError, InputErrors, TwofoldError


def errors_of(text: str) -> list[TwofoldError]:
    with pytest.raises(InputErrors) as caught:
        parse_scenario(text, "scenario.yaml", Reading(frozenset({"chat", "batch"})))
    return list(caught.value.errors)


def test_an_empty_mapping_is_the_plans_own_day() -> None:
    assert parse_scenario("{}", "scenario.yaml") == Scenario()


def test_quantities_become_si_numbers(tmp_path: Path) -> None:
    path = tmp_path / "scenario.yaml"
    path.write_text(
        "name: zone-loss\nhorizon: 30 min\nwarm_up: 2 min\n"
        "traffic: {arrivals: gamma, burstiness: 2x, bursts: {at: 0 s, for: 2 min, rate: 3x, class: chat}}\n"
        "clients: {retry: backoff, patience: 30 s}\n"
        "faults: {kind: zone-loss, at: 10 min, zone: 2, back_after: 5 min}\n"
        "policies: {routing: prefix, retry_budget: off, scaling: {least: 2}}\n"
        "beliefs: {error: 20 %}\n"
    )
    scenario = read_scenario(path, Reading(frozenset({"chat"})))
    (burst,), (fault,) = scenario.traffic.bursts, scenario.faults
    assert (scenario.horizon_s, scenario.warm_up_s, burst.rate_ratio, fault.zone) == (1800, 120, 3, 2)
    assert (fault.at_s, fault.back_after_s, scenario.clients.attempts) == (600, 300, 4)
    policies = scenario.policies
    assert (policies.retry_budget.is_on, policies.scaling.is_on, policies.warm.is_on) == (False, True, False)
    assert scenario.beliefs.error_fraction == 0.2


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("policies: {off: [queue, hedge]}", "write `queue: off`, `hedge: off`"),
        ("policies: {on: scaling}", "write `scaling: on`"),
        ("policies: {off: [routing]}", "write `NAME: off`, NAME one of limits, queue, admission"),
        ("policies: {queue: {off: true}}", "write `queue: off`"),
        ("traffic: {off: chat}", "keys: "),
    ],
)
def test_a_switch_before_what_it_switches_is_told_the_form(text: str, hint: str) -> None:
    (error,) = errors_of(text)
    assert error.code == "E-key" and error.hint.startswith(hint)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("horizon: 5", "`horizon: 5` needs a unit"),
        ("polices: {}", "`polices` is not a key of a scenario"),
        ("faults: [{kind: zon-loss, at: 1 s}]", "`kind: zon-loss` is not a choice"),
        ("faults: [{kind: zone-loss}]", "a `zone-loss` needs `at`"),
        ("faults: [{kind: replica-crash, at: 1 s, zone: 2}]", "`zone` means nothing for `replica-crash`"),
        ("horizon: 5 min\nfaults: [{kind: zone-loss, at: 6 min}]", "the zone-loss begins after the horizon"),
        ("horizon: 5 min\nwarm_up: 5 min", "the warm-up is as long as the horizon"),
        ("fleet: {replicas: 0}", "`replicas: 0` serves nobody"),
        ("fleet: {replicas: 4, spares: 1}", "`spares` contradicts it"),
        ("policies: {warm: on}", "`scaling` is off"),
        (
            "policies: {retry_budget: {switch: off, fraction: 5 %}}",
            "`fraction` is set, but the policy is off",
        ),
        ("policies: {scaling: {least: 4, most: 2}}", "`most: 2` is below `least: 4`"),
        ("clients: {attempts: 3}", "`attempts` means nothing where `retry` is `never`"),
        ("traffic: {burstiness: 2x}", "`burstiness` belongs to arrivals `gamma`"),
        ("traffic: {tenants: [{name: a, share: 60 %}, {name: b, share: 50 %}]}", "110 % of the requests"),
        ("traffic: {bursts: [{at: 0 s, for: 1 s, rate: 2x, tenant: a}]}", "of no tenant"),
        ("traffic: {bursts: [{at: 0 s, for: 1 s, rate: 2x, class: chatt}]}", "is not a class of the service"),
        ("traffic: {scale: 0x}", "is zero"),
        ("cluster: {nodes: 2, spares: 2}", "leave none to train on"),
        ("cluster: {jobs: {trace: a.csv, rate: 3 /h}}", "a `trace` or at a `rate`"),
        (
            "cluster: {serving: [{at: 9 h, accelerators: 8}, {at: 8 h, accelerators: 1}]}",
            "rise within one day",
        ),
    ],
)
def test_what_contradicts_itself_or_cannot_happen_is_refused_at_its_place(text: str, says: str) -> None:
    (error,) = errors_of(text)
    assert says in error.message
    assert error.place is not None
    assert error.exit_code == 2


def test_every_mistake_is_told_in_one_pass() -> None:
    text = "horizon: 5\ntraffic:\n  bursts: [{at: 0 s, for: 1 s, rate: 2x, class: chatt}]\nbelief: {}\n"
    errors = errors_of(text)
    assert [(error.code, error.place and error.place.line) for error in errors] == [
        ("E-unit", 1),
        ("E-name", 3),
        ("E-key", 4),
    ]
    assert "did you mean `chat`?" in errors[1].hint
    assert "did you mean `beliefs`?" in errors[2].hint


def test_a_class_is_not_judged_where_none_is_known() -> None:
    text = "traffic: {bursts: [{at: 0 s, for: 1 s, rate: 2x, class: anything}]}"
    assert parse_scenario(text, "scenario.yaml").traffic.bursts[0].class_name == "anything"


def test_a_scenario_that_is_not_there_is_a_file_error(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="does not exist"):
        read_scenario(tmp_path / "none.yaml")


def test_a_list_is_no_scenario() -> None:
    with pytest.raises(TwofoldError, match="a scenario needs keys"):
        parse_scenario("- zone-loss\n", "scenario.yaml")
