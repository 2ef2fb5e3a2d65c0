"""The whole proof against stand-ins for engines, in its order: calibrated, frozen, then run and compared.

The engines are paced stand-ins in processes of their own; controller, gateway, loads and twin are real.
"""

import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tests.rehearse.test_as_measured import THERE, TIMES, traffic
from tests.small_service import planned, requests
from twofold.app.loop_stages import LOAD_ENDED
from twofold.app.proof_calibration import Bench, Calibration, Loads
from twofold.app.proof_runs import Standing, run_live
from twofold.app.proof_scenarios import KILLED, STEADY, drawn
from twofold.app.proof_stages import need_alone
from twofold.app.proving import FROZEN_FILE, Proving, check_frozen, freeze, proved
from twofold.contracts.results.proof import MachineUse
from twofold.core.errors import AlteredError, BusyError, RunError
from twofold.core.estimate import Estimate
from twofold.live.control import trials
from twofold.live.control.engines import EngineSettings
from twofold.live.control.service import ServiceSettings
from twofold.live.control.supervisor import bring_down, bring_up
from twofold.live.control.trials import until_whole
from twofold.live.loads.texts import Texts, halves, texts_of
from twofold.live.processes import free_port, running
from twofold.policy.gate import settings as gates
from twofold.rehearse.run import PoolTask
from twofold.rehearse.step_fit import Fit
from twofold.twin.serving import fault_types

for library in ("uvicorn", "aiohttp", "psutil", "uvloop"):
    pytest.importorskip(library, reason="needs the extra [live]: `make extras`")

STUB = Path(__file__).parents[1] / "live" / "stub_server.py"
PLACES = 3  # of a replica
PACE_S, WORSE_PACE_S = 0.01, 0.03  # of a token


def quick_task() -> PoolTask:
    """The planned service whose gate decides of a release within some dozen requests."""
    task = planned()
    canary = gates.CanarySettings(stages=(gates.Stage(0.5, 20),), block_count=4)
    gate = replace(task.gate.settings, canary=canary, rollout=gates.RolloutSettings(tick_s=0.25))
    models = {key: replace(each, in_flight_limit=PLACES) for key, each in task.world.models.items()}
    world = replace(task.world, gate=gate, models=models)
    return replace(task, world=world, gate=replace(task.gate, settings=gate))


@dataclass
class Stand:
    standing: Standing
    task: PoolTask
    told: list[tuple[float, str]] = field(default_factory=list)

    def tell(self, text: str) -> None:
        self.told.append((time.time(), text))

    def asked(self, **changed: object) -> Proving:
        folder = self.standing.state / "proof"
        made = Proving(self.standing, self.task, requests(), texts_of(1), folder, 7, 30, 20, tell=self.tell)
        return replace(made, **changed)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def stand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    folder, task = tmp_path_factory.mktemp("proof"), quick_task()
    program = folder / "stub"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {STUB} "$@"\n')
    program.chmod(0o755)
    for name, pace_s in (("v1", PACE_S), ("worse", WORSE_PACE_S)):
        (folder / name).mkdir()
        (folder / name / "pace.txt").write_text(str(pace_s))
    engine = EngineSettings(str(folder / "v1"), "float32", 1, 256, 2048, program=str(program))
    beliefs, state = task.gate.beliefs, folder / ".twofold"
    settings = ServiceSettings(
        engine,
        2,
        PLACES,
        free_port(),
        beliefs.input_token_s,
        beliefs.output_token_s,
        task.gate.settings,
        name="stand-in",
        first_token_s=beliefs.first_token_s,
    )
    worse = replace(engine, artefact=str(folder / "worse"))
    try:
        bring_up(settings, state)
        yield Stand(Standing(state, settings, worse), task)
    finally:
        bring_down(state)
        assert running(state) == []


def test_a_proof_freezes_before_it_runs_and_finds_what_a_death_did(stand: Stand) -> None:
    stand.told.clear()
    found = proved(stand.asked())
    words = [text for _, text in stand.told]
    frozen_at = next(n for n, text in enumerate(words) if text.startswith("frozen: sha256 "))
    live = [n for n, text in enumerate(words) if text.startswith("live: ")]
    assert len(live) == 4 and frozen_at < min(live)
    assert all(n < frozen_at for n, text in enumerate(words) if text.startswith("calibrate"))
    path = stand.standing.state / "proof" / FROZEN_FILE
    assert path.stat().st_mtime <= stand.told[live[0]][0] and found.frozen.sha256 in words[frozen_at]
    said = json.loads(path.read_text())["said"]
    rows = {(row.scenario, row.name): row for row in found.rows}
    assert {key: row.twin and row.twin.value for key, row in rows.items()} == {
        (scenario, name): each and each["value"]
        for scenario, figures in said.items()
        for name, each in figures.items()
    }
    assert found.calibration.release_factor > 1.5  # 3, but for what is around a token on a busy machine
    assert rows[KILLED, "routing recovers"].live != (None, None)
    assert all(each is not None and each > 0.1 for each in rows[KILLED, "capacity back"].live)
    counted = [(run.scenario, float(run.finished)) for run in found.runs]
    for scenario in (STEADY, KILLED):
        row = rows[scenario, "finished"]
        assert row.live == tuple(count for name, count in counted if name == scenario)
        assert row.inside is (min(each or 0.0 for each in row.live) >= 30)
    steady = rows[STEADY, "TPOT p50"]
    assert steady.twin is not None and all(each is not None for each in steady.live)
    assert {(run.scenario, run.sent - run.finished - run.refused - run.lost) for run in found.runs} == {
        (STEADY, 0),
        (KILLED, 0),
    }


def test_a_bad_release_is_tried_and_rolled_back_live(stand: Stand) -> None:
    arrivals = drawn(replace(requests(), rate_per_s=12.0), (1.0,), 120, 1, 1)
    ran = run_live(stand.standing, arrivals, texts_of(2), fault_types.Release(0.2, "worse")).ran
    assert ran.rolled_back_s is not None and 0.0 < ran.rolled_back_s < 10.0
    assert 0 < ran.tried_count < 120
    names = until_whole(stand.standing.state, stand.standing.settings.version, 2)
    assert len(names) == 2  # of the old version: capacity is back too


def test_one_more_serves_and_goes_and_one_that_never_comes_calibrates_nothing(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(stand.standing, stand.task, requests(), texts_of(2), 7, 20)
    held = Loads(bench, (1.0,), stand.tell)
    ran = held.hold(8.0, 40, one_more_s=0.5)
    assert ran.more_s is not None and 0.5 < ran.more_s < 60.0
    assert held.runs[0].until_s == ran.more_s and held.runs[0].one_more_s == 0.5
    until_whole(stand.standing.state, stand.standing.settings.version, 2)
    monkeypatch.setattr(trials, "one_more", lambda _state: None)
    with pytest.raises(RunError, match="a replica more did not come"):
        held.hold(20.0, 20, one_more_s=0.2)
    assert len(held.runs) == 1


def test_whoever_else_asks_is_counted_and_keeps_a_proof_from_beginning(stand: Stand) -> None:
    standing = stand.standing
    arrivals = drawn(replace(requests(), rate_per_s=20.0), (1.0,), 5, 1, 1)
    ran = run_live(standing, arrivals, texts_of(2))
    assert ran.others_asked == 0 and len(ran.ran.seen) == 5
    need_alone(standing.state)  # it was we who asked
    (standing.state / LOAD_ENDED).unlink()
    with pytest.raises(BusyError, match="a proof kills replicas of it") as caught:
        need_alone(standing.state)
    assert caught.value.exit_code == 2 and caught.value.hint


def test_a_frozen_file_that_is_changed_or_gone_is_noticed(stand: Stand, tmp_path: Path) -> None:
    calibration = Calibration(Fit(TIMES, 0.1), THERE, 12.5, 2.0, (1.0,), MachineUse(0.0, 0.0, 0.0))
    said = {STEADY: {"TTFT p50": Estimate(0.02, 0.01, 0.03, "s"), "retried": None}}
    frozen = freeze(stand.asked(folder=tmp_path), calibration, traffic(), said)
    check_frozen(tmp_path, frozen)
    assert frozen.said == said
    path = tmp_path / FROZEN_FILE
    path.write_text(path.read_text().replace("0.02", "0.021"))
    with pytest.raises(AlteredError, match="was told"):
        check_frozen(tmp_path, frozen)
    path.unlink()
    with pytest.raises(AlteredError, match="cannot be read"):
        check_frozen(tmp_path, frozen)


def test_halves_share_no_text_and_are_the_same_for_a_seed() -> None:
    texts: Texts = texts_of(1)
    one, other = halves(texts, 7)
    assert abs(len(one.text) - len(other.text)) <= 2 * 4096
    assert (one.text, other.text) == tuple(each.text for each in halves(texts, 7))
    assert halves(texts, 8)[0].text != one.text
    pieces = [one.text[at : at + 4096] for at in range(0, len(one.text) - 4096, 4096)]
    assert sum(piece in other.text for piece in pieces) < 0.02 * len(pieces)  # but for what is there twice


def test_a_fault_that_comes_too_late_is_not_done_any_more(stand: Stand) -> None:
    arrivals = drawn(replace(requests(), rate_per_s=20.0), (1.0,), 3, 1, 1)
    late = fault_types.ReplicaCrash(60.0, "r0", back_after_s=0.0)
    ran = run_live(stand.standing, arrivals, texts_of(2), late)
    assert ran.done_s is None and ran.ran.back_s is None and len(ran.ran.seen) == 3
