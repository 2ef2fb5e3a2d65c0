"""The requirement rows of area `converged`: partitions of one device, and each half on the other's fleet."""

from collections.abc import Callable
from typing import Any

import pytest

Ask = Callable[[str], Any]


@pytest.mark.parametrize("request_text", ["7x 1g.10gb + 1x 1g.10gb", "7g.80gb + 1g.10gb"])
def test_r_088_mig_lists_its_profiles_and_refuses_seven_and_one(
    request_text: str, command: str, ask: Ask
) -> None:
    """The plan's half; requests on partitions under load are the twin's."""
    line, _, _ = command.partition(" --fit")
    listed = ask(f"{line} --json").data
    names = {profile["profile"] for profile in listed["profiles"]}
    assert {"1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"} <= names
    for cut in listed["cuts"]:
        slices = {profile["profile"]: profile["compute_slices"] for profile in listed["profiles"]}
        assert sum(slices[part["profile"]] for part in cut) <= 7
    refused = ask(f"{line} --fit '{request_text}'")
    assert refused.code == 3
    assert " 8 compute slices; H100-SXM5-80GB has 7" in " ".join(refused.err.split())
    assert ask(f"{line} --fit '3x 1g.10gb + 4g.40gb'").code == 0


def test_r_089_amd_partition_modes_and_their_limits_are_listed(data: Any, command: str, ask: Ask) -> None:
    modes = {profile["profile"]: profile for profile in data["profiles"]}
    assert {name: mode["count_max"] for name, mode in modes.items()} == {
        "SPX": 1,
        "DPX": 2,
        "QPX": 4,
        "CPX": 8,
    }
    for mode in modes.values():
        assert mode["count_max"] * mode["memory_bytes"] == pytest.approx(192e9)
        assert mode["memory_modes"]
    assert ask(f"{command} --fit 'SPX + CPX'").code == 3  # all of a device share one mode


def test_r_094_each_half_is_priced_on_the_others_fleet(data: Any, screen: str, plans: dict[str, Any]) -> None:
    """The plan's half of the row; supply weighs a fleet that both halves share."""
    cells = {(row["half"], side): row[side] for row in data["rows"] for side in ("own", "other")}
    assert len(cells) == 4
    for cell in cells.values():
        assert cell["cost_usd"]["value"] > 0
        time = cell["wall_s"] if cell["half"] == "training" else cell["latency_s"]
        assert time["value"] > 0
    for half in ("training", "serving"):
        own, other = cells[half, "own"], cells[half, "other"]
        assert own["fleet"] == half != other["fleet"]
        assert own["feasible"]
        (row,) = [row for row in data["rows"] if row["half"] == half]
        grows = other["cost_usd"]["value"] / own["cost_usd"]["value"] - 1
        assert row["cost_penalty_fraction"] == pytest.approx(grows)
        assert (
            half == "training" or grows >= -1e-9
        )  # none is cheaper than the service's own; the run's was given
    assert "on the training fleet" in screen and "on the serving fleet" in screen
    assert {(cell["half"], cell["fleet"]) for cell in plans["assistant"]["cross"]} == {
        (half, fleet) for half in ("training", "serving") for fleet in ("training", "serving")
    }


def test_r_181_a_slice_limits_the_plan_and_manifests_request_it(command: str, ask: Ask) -> None:
    spec = command.split()[2]
    (service,) = ask(f"twofold plan {spec} --json").data["serving"]
    assert service["machine"]["accelerator"] == "H100-SXM5-80GB:1g.10gb"
    # An eighth of the memory that an H100 gives to software, and a price by a seventh: assumed.
    assert 8.0 < service["memory_capacity_bytes"] / 2**30 < 10.0
    assert service["machine"]["price"]["usd_per_accelerator_h"]["source"] == "a"
    assert all(pool["replica"]["accelerator_count"] == 1 for pool in service["pools"])
    assert "--gres=gpu:1g.10gb:1" in ask(f"twofold render {spec} --target slurm").out
    larger = ask(
        "twofold estimate serve llama-3.1-8b --on 7xH100-SXM:1g.10gb --input 500 --output 100 --rate '1 /s'"
    )
    assert larger.code == 3 and "a larger slice" in " ".join(larger.err.split())
