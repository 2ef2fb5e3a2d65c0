"""The twin's requirement rows of training, of one pool for both halves, and of what training is judged by."""

import csv
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

Ask = Callable[[str], Any]


def figures(sweep: Any, name: str) -> list[float]:
    """The means of one figure, value after value."""
    return [point["figures"][f"training.{name}"]["mean"] for point in sweep["points"]]


def finding(sweep: Any, rule: str) -> Any:
    (found,) = [found for found in sweep["findings"] if found["rule"] == rule]
    return found


def test_r_013_a_link_at_half_its_speed_slows_steps_and_is_named(data: Any, command: str, ask: Ask) -> None:
    sound = ask(command.replace(":slow-link", "") + " --json").data["training"]
    slow = data["training"]
    share = slow["step"]["parts_s"]["communication"] / sum(slow["step"]["parts_s"].values())
    assert slow["slowdown_factor"] == pytest.approx(1 + share, rel=1e-3)  # its share of the step takes twice
    assert sound["slowdown_factor"] == 1.0 and not sound["pace_setters"] and not sound["alarms"]
    assert list(slow["pace_setters"]) == ["node-1"]
    assert data["broke_first"].startswith("node-1 sets the pace")


def test_r_014_jitter_lengthens_the_p99_step_and_rings_beyond_five_percent(data: Any) -> None:
    assert [point["value"] for point in data["points"]] == ["0%", "0.5%", "2%", "10%"]
    p99, over = figures(data, "step_p99_s"), figures(data, "step_inflation_fraction")
    assert over[0] == pytest.approx(0.0, abs=1e-9)
    assert all(later > sooner for sooner, later in pairwise(p99))
    assert over[1] < 0.05 < over[2]
    assert "from a jitter of 2% " in finding(data, "alarm")["text"]


def test_r_015_competing_gangs_never_hold_a_part_and_never_deadlock(data: Any) -> None:
    training = data["training"]
    assert training["partial_gang_count"] == training["deadlock_count"] == 0
    assert training["outcomes"] == {"completed": training["submitted_count"]}
    assert training["queue_s_p95"]["65-512"] >= 2 * 3600  # one large job waits for the other


def test_r_016_the_largest_free_block_and_the_fragmentation_are_shown(data: Any, screen: str) -> None:
    training = data["training"]
    idle_count = training["accelerator_h"]["idle"] * 3600 / training["duration_s"]
    assert 0 < training["largest_free_count_mean"] <= training["accelerator_count"]
    assert training["largest_free_count_mean"] < 1.5 * idle_count
    assert 0 < training["fragmentation_fraction"] < 1
    assert "fragmented" in screen


def test_r_017_teams_have_their_quotas_and_their_queue_times(data: Any) -> None:
    teams = {team["name"]: team for team in data["training"]["teams"]}
    assert {name: team["quota_fraction"] for name, team in teams.items()} == {
        "red": 0.5,
        "blue": 0.25,
        "green": 0.25,
    }
    for team in teams.values():
        assert team["share_fraction"] == pytest.approx(team["quota_fraction"], rel=0.1)
        assert team["queue_s_p95"] > 0
    assert sum(team["share_fraction"] for team in teams.values()) == pytest.approx(1.0)


def test_r_018_a_preempted_job_loses_less_than_a_checkpoint_interval(data: Any) -> None:
    training = data["training"]
    assert training["preempted_count"] > 10 and training["failure_count"] == 0
    assert training["preempted_lost_s_max"] < training["checkpoint_interval_s_mean"]
    assert training["restart_count"] == training["preempted_count"]  # each went on again
    assert training["effects"]["SaveCheckpoint"] >= training["preempted_count"]


def test_r_022_spares_repair_sooner_and_so_many_are_recommended(data: Any) -> None:
    """Of a hundred nodes, so that one spare is one percent."""
    recovery, goodput = figures(data, "recovery_s_mean"), figures(data, "goodput_fraction")
    assert recovery[0] > recovery[1] >= recovery[2]
    assert recovery[2] < recovery[0] / 5
    assert max(goodput) - min(goodput) > 0.003
    work = figures(data, "work_fraction")
    best = data["points"][work.index(max(work))]["value"]
    assert finding(data, "enough")["text"].startswith(f"cluster.spares {best}:")


def test_r_023_many_small_files_are_flagged(data: Any) -> None:
    files, metadata = figures(data, "checkpoint_files_count"), figures(data, "checkpoint_metadata_s")
    assert files == pytest.approx([80, 800, 80_000, 800_000])
    assert metadata == pytest.approx([count / 20_000 for count in files])
    found = finding(data, "small files")
    assert found["text"].startswith("from 1000x") and found["value"] > 0.1


def test_r_038_every_job_and_where_it_stood_is_exported(
    data: Any, command: str, ask: Ask, tmp_path: Path
) -> None:
    path = tmp_path / "jobs.csv"
    assert ask(f"{command} --jobs {path}").code == 0
    with path.open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    training = data["training"]
    assert len(rows) == training["submitted_count"]
    busy_h = sum(float(row["busy_s"]) for row in rows) / 3600
    assert busy_h == pytest.approx(training["accelerator_h"]["busy"] + training["accelerator_h"]["slowed"])
    for row in rows:
        assert bool(row["placement"]) == bool(row["started_s"])
        if row["placement"]:
            parts = [int(part.rpartition(":")[2]) for part in row["placement"].split()]
            assert sum(parts) == int(row["accelerator_count"])
    running = {row["job_id"]: row["placement"] for row in rows if row["state"] == "running"}
    assert running == training["placement"]


def test_r_090_both_halves_slow_each_other_down_on_one_pool(data: Any, command: str, ask: Ask) -> None:
    split = data["training"]["split"]
    assert 1.0 < split["training_slowdown_factor"] < 1.5
    assert 1.0 < split["serving_slowdown_factor"] < 1.2
    apart = ask(command.replace(":interference", ":against-split") + " --json").data["training"]["split"]
    assert apart["training_slowdown_factor"] == apart["serving_slowdown_factor"] == 1.0


def test_r_091_one_pool_is_held_against_two_fleets(data: Any) -> None:
    split = data["training"]["split"]
    assert split["shared_utilisation_fraction"] > split["split_utilisation_fraction"] + 0.05
    assert split["shared_shortfall_s"] <= split["split_shortfall_s"] + 60
    assert split["training_gain_fraction"] > 0.4


def test_r_138_a_run_tells_its_rates_and_both_its_times(data: Any) -> None:
    (run,) = data["training"]["runs"]
    assert run["state"] == "completed"
    assert run["completion_s"] == pytest.approx(run["waited_s"] + run["train_s"])
    assert run["tokens_per_s"] * run["train_s"] == pytest.approx(100e9, rel=1e-6)
    assert run["tokens_per_s"] / run["samples_per_s"] == pytest.approx(4096, rel=1e-3)


def test_r_142_the_part_of_a_step_that_rises_with_scale_is_named(data: Any, command: str, ask: Ask) -> None:
    """Nodes share a store that feeds half as many again: beyond them steps wait for their input."""
    assert finding(data, "imbalance")["text"].startswith("input rises")
    assert figures(data, "run_accelerators") == [200, 400, 800, 1600, 3200]
    waited = figures(data, "step_input_s")
    assert waited[:3] == [0, 0, 0] and 0 < waited[3] < waited[4]
    sound = ask(command.replace(":slow-reading", "") + " --json").data
    assert finding(sound, "imbalance")["text"].startswith("none")


def test_r_148_hours_by_use_add_up_to_what_is_reserved(data: Any) -> None:
    training = data["training"]
    hours = training["accelerator_h"]
    reserved_h = training["accelerator_count"] * training["duration_s"] / 3600
    assert sum(hours.values()) == pytest.approx(reserved_h)
    held = sum(hours[use] for use in ("busy", "slowed", "lost", "checkpointing", "restarting"))
    assert sum(team["accelerator_h"] for team in training["teams"]) == pytest.approx(held)
    assert sum(training["outcomes"].values()) == training["submitted_count"]
    assert training["preempted_count"] > 0 and all(wait >= 0 for wait in training["queue_s_p95"].values())
