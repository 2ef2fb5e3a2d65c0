"""The requirement rows of area `metrics`: communication that nothing hides, and what hours are worth."""

import html
import json
import math
import re
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from twofold.app.reporting import write_page
from twofold.core.display import format_seconds
from twofold.core.quantity import DAY_S

COMMUNICATION = {"TP", "CP", "EP", "PP", "DP"}


def test_r_145_every_plan_shows_its_exposed_communication(
    plans: dict[str, Any], ask: Callable[[str], Any]
) -> None:
    """On the plan's own screen; the summary page of many plans is report's."""
    for name, plan in plans.items():
        halves = (*plan["training"], *plan["serving"])
        screen = " ".join(ask(f"twofold plan examples/{name} --full").out.split())
        assert screen.count("exposed communication ") == len(halves), name
        for run in plan["training"]:
            parts = [part["share_fraction"] for part in run["step_parts"] if part["name"] in COMMUNICATION]
            assert run["communication_exposed_fraction"] == pytest.approx(sum(parts), abs=1e-9)
        for half in halves:
            assert 0 <= half["communication_exposed_fraction"] < 1
    assert plans["moe"]["training"][0]["communication_exposed_fraction"] > 0.02


def test_r_147_hours_a_loss_target_and_a_finish_date_stand_side_by_side(
    command: str, screen: str, ask: Callable[[str], Any], tmp_path: Path
) -> None:
    (run,) = ask(f"{command.replace(' --details', '')} --json").data["training"]
    buys, first = run["delivery"], date(2027, 1, 11)
    days = run["run"]["total_s"]["value"] / DAY_S
    assert date.fromisoformat(buys["ends_on"]) == first + timedelta(days=math.ceil(days) - 1)
    # By hand, of the refit: what 8.03 B parameters and 160 Gtok leave.
    by_hand = 1.8172 + 482.01 / 8.03e9**0.3478 + 2085.43 / 160e9**0.3658
    assert buys["loss"]["value"] == pytest.approx(by_hand, abs=1e-3)
    assert buys["loss_target_nats"] == 2.1 and buys["loss_target_met"] is False
    assert f"{buys['target_tokens']['value'] / 1e9:.0f} Gtok" in " ".join(screen.split())

    page = tmp_path / "report.html"
    write_page(Path(command.split()[2]), page)
    (bought,) = [
        each
        for each in re.findall(r"<table>(.*?)</table>", page.read_text("utf-8"), re.DOTALL)
        if "finish date" in each
    ]
    rows = [html.unescape(re.sub(r"<[^>]+>", " ", row)) for row in re.findall(r"<tr>(.*?)</tr>", bought)]
    wanted = {
        "accelerator-hours": " GPU-h ",
        "expected loss": f"{by_hand:.3f} nats/token",
        "target": "2.1 ✗",
        "finish date": buys["ends_on"],
    }
    assert len(rows) == len(wanted)
    for row, (label, said) in zip(rows, wanted.items(), strict=True):
        assert label in row and said in row


def test_r_146_clients_of_each_region_see_their_own_first_tokens_and_failures(
    command: str, ask: Callable[[str], Any], tmp_path: Path
) -> None:
    """Regions of clients are tenants of the scenario; what lies between them and the gate is not modelled."""
    data = ask(f"{command} --json").data
    seen = {each["name"]: each for each in data["tenants"]}
    assert sorted(seen) == ["ap-south", "eu-west", "us-east"]
    unanswered = {name: 1 - each["finished_count"] / each["arrived_count"] for name, each in seen.items()}
    # The device's counters are the same for all three, and so is what the whole class met.
    assert unanswered["ap-south"] > 0.3 > 0.05 > unanswered["eu-west"]
    (whole,) = [one for one in data["classes"] if one["name"] == "chat"]
    share = 1 - whole["finished_count"] / whole["arrived_count"]
    assert unanswered["eu-west"] < share < unanswered["ap-south"]
    assert sum(each["arrived_count"] for each in seen.values()) == whole["arrived_count"]
    assert data["fleets"][0]["utilisation_fraction"] > 0.9

    saved, page = tmp_path / "rehearsal.json", tmp_path / "report.html"
    saved.write_text(json.dumps(data), "utf-8")
    write_page(saved, page)
    rows = [re.sub(r"<[^>]+>", "|", row) for row in re.findall(r"<tr>(.*?)</tr>", page.read_text("utf-8"))]
    (head,) = [row for row in rows if "without an answer" in row and "tenant" in row]
    assert "TTFT p95" in head
    for name, each in seen.items():
        (row,) = [row for row in rows if f"|{name}|" in row]
        assert format_seconds(each["ttft_p95_s"]) in row and f"{each['arrived_count']:,}" in row
