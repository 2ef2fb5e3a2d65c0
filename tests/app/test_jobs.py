"""`jobs` of a spec: its slots, what the brain is told of them, checkpoints that move live as in the twin."""

import json
import os
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("psutil", reason="needs the extra [live]: `make extras`")

from tests.fake_nvidia import nvidia_smi
from twofold.app.jobs import (
    Wanted,
    cancel_job,
    list_jobs,
    order_of_run,
    queue_settings,
    slots_here,
    submit_job,
)
from twofold.app.loop_settings import laid_out, other_layout, train_settings
from twofold.app.looping import known_state
from twofold.app.planning import plan
from twofold.app.simulating import SimulateOptions, simulate
from twofold.app.sources import load
from twofold.core.errors import UnknownNameError, ValueRefusedError
from twofold.live import processes
from twofold.live.control.supervisor import bring_down
from twofold.live.jobs.driver import Driver
from twofold.live.jobs.job_log import LOG, read_job_log
from twofold.live.jobs.orders import (
    job_folder,
    jobs_folder,
    new_job_id,
    order_files,
    read_settings,
    submit,
    write_settings,
)
from twofold.policy.cluster import events
from twofold.policy.cluster.gang_queue import JobState

EXAMPLE = Path(__file__).parents[2] / "examples" / "laptop"
STUB = Path(__file__).parents[1] / "live" / "stub_trainer.py"
PATIENCE_S = 60.0
COUNTED = 3  # checkpoints
RUN = """\
model: ./config.json
training:
  name: tiny
  steps: 3000000
  sequence: 128 tok
  global_batch: 8 seq
  precision: fp32
  framework: pytorch-fsdp
  team: red
  priority: 2
  on: 1x2xthis-machine
  checkpoint: {write_within: WRITE, stall: WRITE}
"""


def a_spec(folder: Path, write: str = "2 s", more: str = "") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text((EXAMPLE / "config.json").read_text())
    (folder / "twofold.yaml").write_text(RUN.replace("WRITE", write) + more)
    return folder / "twofold.yaml"


def live_interval_s(folder: Path, write: str, scenario: str) -> float:
    """Until the first checkpoint of a running gang, as the driver's brain has it; a stand-in trains."""
    spec, state = a_spec(folder, write), folder / ".twofold"
    settings = queue_settings(2, scenario)
    watch = replace(settings.cluster.watch, silence_s=1e9)  # else that is what it wakes for next
    write_settings(state, replace(settings, cluster=replace(settings.cluster, watch=watch)))
    order = order_of_run(state, load(spec).spec, Wanted())
    command = (sys.executable, str(STUB), "100000", "0.02")
    submit(state, replace(order, command=command, process_count=2))
    try:
        driver = Driver(state)
        deadline_s = time.monotonic() + PATIENCE_S
        while driver.brain.view.jobs == {} or driver.brain.view.jobs["tiny-1"].state is not JobState.RUNNING:
            assert time.monotonic() < deadline_s
            driver.look()
            time.sleep(0.05)
        wake_s = driver.brain.wake_at_s()
        assert wake_s is not None
        return wake_s - driver.clock.now_s()
    finally:
        bring_down(state)
        assert not processes.running(state)


def twin_interval_s(folder: Path, write: str, scenario: str, more_steps: str = "") -> float:
    spec = a_spec(folder, write)
    spec.write_text(spec.read_text().replace("steps: 3000000", f"steps: 3000000{more_steps}"))
    found = simulate(spec, SimulateOptions(scenario=scenario)).data.training
    assert found is not None and found.checkpoint_interval_s_mean is not None
    return found.checkpoint_interval_s_mean


@pytest.mark.parametrize("interval_s", [live_interval_s, twin_interval_s])
def test_a_change_of_failures_or_writes_moves_checkpoints_live_as_in_the_twin(tmp_path, interval_s) -> None:
    for rate in (1, 24):
        (tmp_path / f"fails-{rate}.yaml").write_text(f"cluster:\n  failures: {rate} /d\n")
    seldom, often = (str(tmp_path / f"fails-{rate}.yaml") for rate in (1, 24))
    usual_s = interval_s(tmp_path / "usual", "2 s", seldom)
    assert interval_s(tmp_path / "often", "2 s", often) < 0.8 * usual_s
    assert interval_s(tmp_path / "slow", "20 s", seldom) > 1.2 * usual_s


def live_written_s(
    folder: Path, write_s: float, scenario: str, kills: int = 0, slower_s: float = 0.0
) -> float:
    """Seconds of work before a checkpoint, by the log: the mean of the last two of those that were asked for.

    A rank is killed `kills` times first; writes take `slower_s` more than the spec says.
    """
    spec, state = a_spec(folder, f"{1000 * write_s:g} ms"), folder / ".twofold"
    settings = queue_settings(2, scenario)
    faults = replace(settings.cluster.faults, backoff_s=0.01)
    write_settings(state, replace(settings, cluster=replace(settings.cluster, faults=faults)))
    order = order_of_run(state, load(spec).spec, Wanted())
    command = (sys.executable, str(STUB), "100000", "0.02", str(write_s + slower_s))
    submit(state, replace(order, command=command, process_count=2))
    driver, deadline_s = Driver(state), time.monotonic() + PATIENCE_S
    try:
        while len(found := worked_s(state)) < COUNTED:
            assert time.monotonic() < deadline_s, found
            driver.look()
            if kills and len(found) > 0 and driver.brain.view.jobs["tiny-1"].state is JobState.RUNNING:
                kills -= 1
                os.kill(processes.running(state, "job-tiny-1", exact=True)[0].process_id, signal.SIGKILL)
            time.sleep(0.01)
    finally:
        bring_down(state)
    return sum(found[-2:]) / 2


def worked_s(state: Path) -> list[float]:
    """From each start or write to the checkpoint that was asked for next."""
    found, since_s = list[float](), 0.0
    for run in read_job_log(jobs_folder(state) / LOG):
        for entry in run.entries:
            if any(isinstance(each, events.SaveCheckpoint) for each in entry.effects):
                found.append(entry.now_s - since_s)
            if isinstance(entry.event, events.JobStarted | events.CheckpointWritten):
                since_s = entry.now_s
    return found


def test_checkpoints_are_asked_for_live_as_much_sooner_and_later_as_in_the_twin(tmp_path: Path) -> None:
    """Four times the failures, and four times the write, by what the log says was asked for; then failures
    and writes that were only seen.

    All times of the twin are a hundred times the live queue's, which ratios do not feel. It is not told of
    failures but sees them happen, and learns for some dozens of them: so it is given most of a year, and
    its ratio for failures is 0.44 where Young's square root has 0.5.
    """
    for rate in (4, 16, 400, 1600):
        text = f"cluster: {{failures: {rate} /d, checkpoint_apart: 50 ms, repair: 1 min}}\nhorizon: 300 d\n"
        (tmp_path / f"fails-{rate}.yaml").write_text(text)
    cases = {"usual": (0.02, 4), "often": (0.02, 16), "slow": (0.08, 4)}
    live, twin = dict[str, float](), dict[str, float]()
    for name, (write_s, rate) in cases.items():
        live[name] = live_written_s(tmp_path / name, write_s, str(tmp_path / f"fails-{100 * rate}.yaml"))
        asked = f"{100 * write_s:g} s", str(tmp_path / f"fails-{rate}.yaml")
        twin[name] = twin_interval_s(tmp_path / f"twin-{name}", *asked, more_steps="00")
    for name in ("often", "slow"):
        ratio, rehearsed = live[name] / live["usual"], twin[name] / twin["usual"]
        assert ratio == pytest.approx(rehearsed, rel=0.2), (name, live, twin)
    seldom = str(tmp_path / "fails-400.yaml")
    live["killed"] = live_written_s(tmp_path / "killed", 0.02, seldom, kills=3)
    live["slower"] = live_written_s(tmp_path / "slower", 0.02, seldom, slower_s=0.06)
    assert live["killed"] < 0.8 * live["usual"] < 0.8 * 0.8 * live["slower"], live


def test_a_run_is_queued_as_the_spec_says_unless_told_otherwise(tmp_path) -> None:
    spec = load(a_spec(tmp_path)).spec
    order = order_of_run(tmp_path, spec, Wanted())
    assert (order.job_id, order.team, order.priority, order.slot_count) == ("tiny-1", "red", 2, 2)
    assert (
        order.checkpoint_write_s == order.checkpoint_stall_s == 2.0
        and order.saves
        and order.process_count == 1
    )
    told = order_of_run(tmp_path, spec, Wanted(team="blue", priority=-1, expect="20 min"))
    assert (told.team, told.priority, told.expected_s) == ("blue", -1, 1200.0)
    with pytest.raises(UnknownNameError, match="no training run is named `huge`"):
        order_of_run(tmp_path, spec, Wanted(name="huge"))


def test_a_run_trains_on_the_accelerators_that_its_slots_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch", reason="needs the extra [train]: `make extras`")
    monkeypatch.setattr("twofold.app.jobs._see_to_a_driver", lambda _state: None)
    spec = a_spec(tmp_path)
    state = known_state(spec)

    def device_of(job: str) -> str:
        told = json.loads((job_folder(state, job) / "order.json").read_text())
        return str(told["device"])

    nvidia_smi(tmp_path, monkeypatch, 2)
    assert device_of(submit_job(spec).job) == "cuda" and read_settings(state).accelerators
    nvidia_smi(tmp_path, monkeypatch, 0)  # of this queue they are lost: its ranks are shown none but those
    assert device_of(submit_job(spec).job) == "cuda" and read_settings(state).accelerators
    few = a_spec(tmp_path / "few")
    few.write_text(few.read_text().replace("1x2x", "1x4x"))
    state = known_state(few)
    nvidia_smi(tmp_path, monkeypatch, 2)  # one each, or none
    assert device_of(submit_job(few).job) == "cpu" and not read_settings(state).accelerators


def test_a_run_is_trained_in_the_layout_that_up_trains_it_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch", reason="needs the extra [train]: `make extras`")
    monkeypatch.setattr("twofold.app.jobs._see_to_a_driver", lambda _state: None)
    names = ("zero_stage", "micro_batch_sequences", "recompute")
    spec = a_spec(tmp_path)
    spec.write_text(spec.read_text().replace("sequence: 128 tok", "sequence: 32 tok"))
    usual = train_settings(load(spec).spec, tmp_path)
    planned = plan(spec)
    of_up = laid_out(usual, planned)
    assert of_up.zero_stage != usual.zero_stage  # else this shows nothing

    def trained(spec: Path) -> tuple[list[object], str]:
        shown = submit_job(spec)
        told = json.loads((job_folder(known_state(spec), shown.job) / "order.json").read_text())
        return [told[name] for name in names], " ".join(shown.notes)

    assert trained(spec) == ([getattr(of_up, name) for name in names], other_layout(planned))
    huge = a_spec(tmp_path / "huge")
    config = huge.parent / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "num_hidden_layers": 10**6}))
    layout, note = trained(huge)  # nothing is refused that `jobs` took before
    assert layout == [getattr(usual, name) for name in names] and "its layout cannot be planned: " in note


def test_jobs_that_are_submitted_at_once_have_ids_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, together = a_spec(tmp_path), threading.Barrier(2)

    def slow_id(state: Path, name: str) -> str:
        found = new_job_id(state, name)
        with suppress(threading.BrokenBarrierError):  # where only one may ask at a time, nobody else comes
            together.wait(0.2)
        return found

    monkeypatch.setattr("twofold.app.jobs.orders.new_job_id", slow_id)
    monkeypatch.setattr("twofold.app.jobs._see_to_a_driver", lambda _state: None)
    with ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(submit_job, spec, ("true",)) for _ in range(2)]
        told = {each.result().job for each in asked}
    assert told == {"true-1", "true-2"} == {each for each, _ in order_files(known_state(spec))}


def test_slots_are_the_shares_of_this_machine_that_the_spec_plans_with(tmp_path) -> None:
    spec = load(a_spec(tmp_path)).spec
    assert slots_here(spec) == 2
    elsewhere = a_spec(tmp_path / "elsewhere")
    elsewhere.write_text(elsewhere.read_text().replace("this-machine", "H100-SXM"))
    with pytest.raises(ValueRefusedError, match="nothing of this machine's slots"):
        slots_here(load(elsewhere).spec)


def test_the_brain_is_told_what_a_rehearsal_of_the_scenario_tells_its_own(tmp_path) -> None:
    path = tmp_path / "teams.yaml"
    path.write_text(
        "cluster:\n  quotas:\n    - {team: red, share: 50 %}\n    - {team: blue, share: 25 %}\n"
        "  failures: 2 /d\n  spares: 1\n  nodes: 4\n"
    )
    told = queue_settings(4, str(path)).cluster
    assert [(team.team, team.quota_count, team.weight_ratio) for team in told.teams] == [
        ("red", 2, 0.5),
        ("blue", 1, 0.25),
    ]
    assert told.faults.spare_count == 1 and told.cadence.fixed_interval_s is None
    assert told.cadence.prior_failures_per_accelerator_s == pytest.approx(2 / 86_400 / 4)


def test_r_161_a_run_that_repeats_is_queued_as_often_and_ended_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch", reason="needs the extra [train]: `make extras`")
    often = a_spec(tmp_path, more="  repeats: every 4 weeks\n")
    monkeypatch.setattr("twofold.app.jobs._see_to_a_driver", lambda _: None)
    shown = submit_job(often)
    assert shown.campaign is not None and "tiny is repeated every 28" in "\n".join(shown.lines)
    listed = list_jobs(often)
    assert [each.name for each in listed.repeated] == ["tiny"] and "jobs cancel SPEC NAME" in listed.lines[-1]
    assert "nobody drives" in "\n".join(listed.lines)  # the next turn needs a driver, whatever is over
    with pytest.raises(ValueRefusedError, match="forgotten"):
        submit_job(often, wanted=Wanted(env=("PATH",)))
    assert cancel_job(often, "tiny").lines == ["tiny is not repeated any more; a job of it that runs goes on"]
    assert list_jobs(often).repeated == ()
