"""A class that may wait for a lost zone is not judged late there; one that is to hold is."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from twofold.app.simulating import SimulateOptions, simulate
from twofold.contracts.results.plan import Plan
from twofold.pages.simulation_page import simulation_page
from twofold.report.simulate import simulation_lines

SPEC = """
name: zones
model: llama-3.1-8b
serving:
  zones: 2
  on: 1xH100-SXM
  classes:
    nightly:
      traffic: {tokens_per_day: 3 Gtok}
      slo: {finish_within: 6 h}
"""
SCENARIO = "name: dark\nfaults: [{kind: zone-loss, at: 40 s, back_after: 5 min}]\nhorizon: 6 min\n"


def test_who_may_wait_for_a_zone_is_not_late_there(planned: Callable[[str], Plan], tmp_path: Path) -> None:
    (tmp_path / "dark.yaml").write_text(SCENARIO)
    options = SimulateOptions(scenario=str(tmp_path / "dark.yaml"))
    plan = planned(SPEC)
    (service,) = plan.serving
    (nightly,) = service.classes
    assert not nightly.outlasts_zone
    found = simulate(plan, options)
    (seen,) = found.data.classes
    assert "finish_within" not in seen.missed and seen.arrived_count
    told = " ".join(" ".join(found.lines).split())
    assert "missed: nightly success; not judged: nightly done ≤ 6.0 h (" in told
    assert "done of nightly is not judged: under `on_zone_loss: degrade` it may wait" in told
    assert "no request of nightly" not in told
    assert "not judged: nightly done ≤ 6.0 h" in simulation_page(found.data).html
    served = replace(seen, success=None)
    kept = " ".join(" ".join(simulation_lines(replace(found.data, slos_met=True, classes=(served,)))).split())
    assert "GOALS all judged are met; not judged: nightly done" in kept and "all met" not in kept
    held = replace(service, classes=(replace(nightly, outlasts_zone=True),))
    assert "finish_within" in simulate(replace(plan, serving=(held,)), options).data.classes[0].missed


def test_a_zone_that_stays_lost_ends_the_run_and_not_the_program(
    planned: Callable[[str], Plan], tmp_path: Path
) -> None:
    """Ticks that fell on other events for forty minutes were taken for a circle."""
    (tmp_path / "dark.yaml").write_text(SCENARIO.replace("back_after: 5 min", "back_after: 1 h"))
    options = SimulateOptions(scenario=str(tmp_path / "dark.yaml"))
    found = simulate(planned(SPEC.replace("3 Gtok", "1 Gtok")), options).data
    assert found.classes[0].arrived_count > 0
