"""A service of stand-ins that serves a name of the registry: promoted through its gate, and brought back."""

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

pytest.importorskip("uvicorn", reason="needs the extra [live]: `make extras`")
pytest.importorskip("aiohttp", reason="needs the extra [live]: `make extras`")
pytest.importorskip("tokenizers", reason="needs the extra [train]: `make extras`")

from tokenizers import Tokenizer
from tokenizers.models import BPE

from tests.live.test_controller import PATIENCE_S, STUB, asked_at_once
from tests.live.test_registry import FOUND, model
from twofold.app import promoting
from twofold.app.promoting import promote_version, roll_back_version, served_beside, trace_version
from twofold.app.releasing import HELD_OUT, registered, taken
from twofold.core.data import to_json
from twofold.core.errors import RunError
from twofold.live.control import trials
from twofold.live.control.admin_client import gateway_state
from twofold.live.control.engines import EngineSettings
from twofold.live.control.service import ServiceSettings
from twofold.live.control.status import service_status
from twofold.live.control.store import ReplicaRow, Store
from twofold.live.control.supervisor import bring_down, bring_up
from twofold.live.processes import free_port, log_path, running
from twofold.live.registry.registry import Registry, ReleaseRefusedError
from twofold.live.training.artefact import sha256_of
from twofold.live.training.checkpoints import complete
from twofold.live.training.sealing import write_sealed
from twofold.policy.gate import settings as gates
from twofold.policy.release.rules import Limits

# Margins as wide as a busy machine is uneven: a stand-in's slow build takes twenty times as long.
CANARY = gates.CanarySettings(
    stages=(gates.Stage(0.5, 24),), block_count=4, ttft_margin_fraction=9.0, tpot_margin_fraction=4.0,
    failure_margin_fraction=0.3,
)  # fmt: skip
KEY = b"k" * 32
LETTERS = {chr(byte): number for number, byte in enumerate(range(32, 127))}
GATE = gates.GateSettings(canary=CANARY, rollout=gates.RolloutSettings(tick_s=0.25))
# A trial that outlasts the start of its replica and a few scores: then it is open until quality is judged.
SCORED = replace(
    GATE, canary=replace(CANARY, stages=(gates.Stage(0.5, 24, least_s=8.0),), request_limit_count=100_000)
)
TEXT = "def f(x): return x\n" * 60  # that releases are asked to go on with


@dataclass
class Beside:
    """A registry, and a service of its first version beside it."""

    folder: Path
    registry: Path
    state: Path
    settings: ServiceSettings

    def opened(self) -> Registry:
        return Registry(self.registry)

    def pushed(self, number: int, pace: str = "0.002", parent: str = "", **told: str) -> str:
        """Another version, measured and vouched for; each token takes so many seconds. `parent`: what it says
        to be a copy of; `told`: what else a stand-in reads beside it."""
        source = model(self.folder / f"source-{number}", number)
        for name, text in {"pace": pace, **told}.items():
            (source / f"{name}.txt").write_text(text)
        Tokenizer(BPE(LETTERS, [])).save(str(source / "tokenizer.json"))
        opened = self.opened()
        made_from = {"parent": opened.find(parent).digest} if parent else {}
        text = opened.push(source, "chat", "ann", made_from).version.text
        beside = opened.find("chat@serving").digest if number > 1 else ""
        opened.evaluated(text, replace(FOUND, beside=beside), "ann")
        opened.approve(text, "bob", "read it")
        opened.close()
        return text

    def log(self) -> list[dict[str, object]]:
        opened = self.opened()
        try:
            return [json.loads(line) for line in opened.tables.log()]
        finally:
            opened.close()

    def versions(self) -> set[str]:
        there = (gateway_state(self.state) or {}).get("replicas", {}).values()
        return {each["version"] for each in there if each["healthy"] and not each["draining"]}

    def tried(self, version: str) -> dict[str, object]:
        """The line of the log that tells how the trial of a version under load ended."""
        promote_version(version, self.registry, "ann", "it may be better", "serving", "", 1)

        def ends() -> list[dict[str, object]]:
            lines = [line for line in self.log() if line["on"] == version and line["by"] == "gate"]
            return [
                each for each in lines if each["what"] == "refused release" or each.get("alias") == "serving"
            ]

        self.under_load_until(lambda: bool(ends()), 3)
        return ends()[-1]

    def under_load_until(self, happened: Callable[[], bool], client_count: int = 8) -> None:
        deadline_s = time.monotonic() + PATIENCE_S
        while not happened():
            assert time.monotonic() < deadline_s, service_status(self.state, 40).happened
            asked_at_once(f"http://127.0.0.1:{self.settings.port}", client_count, 4)


@pytest.fixture
def beside(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Beside]:
    """Its gate is `GATE`, or the one that a test names."""
    registry, state = tmp_path / ".twofold-registry", tmp_path / ".twofold"
    program = tmp_path / "stub"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {STUB} "$@"\n')
    program.chmod(0o755)
    Registry(registry, make=True).close()
    made = Beside(
        tmp_path, registry, state, ServiceSettings(EngineSettings("", "", 1, 256, 64), 2, 8, 1, 0, 0)
    )
    first = made.pushed(1)
    opened = made.opened()
    opened.promote(first, "ann", "the first", Limits())
    release = taken(state, opened, first)
    opened.close()
    (state / HELD_OUT).write_text(json.dumps({"slice": "a", "text": TEXT}) + "\n")
    engine = EngineSettings(
        str(release.folder), "float32", 1, 256, 64, program=str(program), digest=release.digest
    )
    told = (2, 64, free_port(), 0.001, 0.01, getattr(request, "param", GATE))
    made.settings = ServiceSettings(
        engine, *told, name="stand-in", registry=str(registry.resolve()), registered="chat"
    )
    try:
        bring_up(made.settings, state)
        yield made
    finally:
        bring_down(state)
        assert running(state) == []


def test_r_159_a_release_is_tried_recorded_and_taken_back_in_seconds(beside: Beside) -> None:
    """Unapproved: refused and logged. Approved: the gate decides, and the registry says so by itself."""
    assert served_beside(beside.registry, "chat") == beside.state
    assert served_beside(beside.registry, "other") is None
    opened = beside.opened()
    opened.push(model(beside.folder / "own", 7), "chat", "ann")
    with pytest.raises(ReleaseRefusedError) as refused:
        promote_version("chat", beside.registry, "ann", "mine", "serving", "", 1)
    assert {"approval", "evaluation"} <= dict(refused.value.lines).keys()
    assert beside.log()[-1]["what"] == "refused promotion to serving" or "candidate" in str(beside.log()[-1])
    good = beside.pushed(2)
    moved = promote_version(good, beside.registry, "ann", "it is better", "serving", "", 1)
    assert moved.move.alias == "candidate" and "the gate tries it beside chat:1" in moved.service
    assert opened.find("chat@serving").text == "chat:1"
    beside.under_load_until(lambda: opened.find("chat@serving").text == good)
    beside.under_load_until(lambda: beside.versions() == {opened.find(good).digest.replace(":", "-")})
    last = [line for line in beside.log() if line["what"] == "move"][-1]
    assert (last["by"], last["on"], last["alias"]) == ("gate", good, "serving") and last["why"]

    # The next one is slower: rolled back unattended, and what served serves on.
    slow = beside.pushed(3, pace="0.05")
    promote_version(slow, beside.registry, "ann", "a new build", "serving", "", 1)
    beside.under_load_until(lambda: beside.log()[-1]["what"] == "refused release")
    assert beside.log()[-1]["by"] == "gate" and beside.log()[-1]["rules"]["gate"] in (
        "tpot worse",
        "ttft worse",
    )
    assert opened.find("chat@serving").text == good
    beside.under_load_until(lambda: beside.versions() == {opened.find(good).digest.replace(":", "-")})

    # And back to the first, by hand.
    back = roll_back_version("chat", beside.registry, "bob", "clients complain", "serving")
    assert back.move.version == 1 and opened.find("chat@serving").text == "chat:1"
    assert back.serves_again_s is not None and back.serves_again_s < 15.0
    assert beside.versions() == {opened.find("chat:1").digest.replace(":", "-")}
    last = [line for line in beside.log() if line["what"] == "move"][-1]
    assert (last["by"], last["why"]) == ("bob", "clients complain")
    opened.verify()
    opened.close()


@pytest.mark.parametrize("beside", [SCORED], indirect=True)
def test_a_release_that_is_worse_by_the_text_of_its_answers_alone_is_taken_back(beside: Beside) -> None:
    """As fast as what serves, and it never fails: only who reads its answers can tell. A copy is to say what
    serves says; what was trained anew is to go on as the held-out text does, and one that does is promoted.
    """
    other = beside.tried(beside.pushed(2, parent="chat:1", said="y"))
    assert other["what"] == "refused release", other
    assert other["rules"] in ({"gate": "quality worse"}, {"gate": "quality likely worse"})
    better = beside.tried(beside.pushed(3, known=TEXT))
    assert better.get("alias") == "serving", better
    opened = beside.opened()
    assert opened.find("chat@serving").text == "chat:3"
    beside.under_load_until(lambda: beside.versions() == {opened.find("chat:3").digest.replace(":", "-")})
    opened.verify()
    opened.close()


def test_a_roll_back_during_a_trial_calls_it_off_and_every_replica_runs_what_served_before(
    beside: Beside,
) -> None:
    second = beside.pushed(2)
    promote_version(second, beside.registry, "ann", "better", "serving", "", 1)
    opened = beside.opened()
    beside.under_load_until(lambda: opened.find("chat@serving").text == second)
    names = {number: opened.find(f"chat:{number}").digest.replace(":", "-") for number in (1, 2)}
    beside.under_load_until(lambda: beside.versions() == {names[2]})
    third = beside.pushed(3)
    promote_version(third, beside.registry, "ann", "better still", "serving", "", 1)
    names[3] = opened.find(third).digest.replace(":", "-")
    deadline_s = time.monotonic() + PATIENCE_S
    while names[3] not in beside.versions():  # without requests nothing is decided
        assert time.monotonic() < deadline_s, service_status(beside.state, 40).happened
        time.sleep(0.05)
    back = roll_back_version("chat", beside.registry, "bob", "clients complain", "serving")
    assert back.move.version == 1 and opened.tables.aliases("chat") == {"serving": 1}
    assert beside.versions() == {names[1]}
    while len(running(beside.state, "re")) != 2:  # what was tried is gone, and what it stood for is there
        assert time.monotonic() < deadline_s + PATIENCE_S, service_status(beside.state, 40).happened
        time.sleep(0.05)
    assert beside.versions() == {names[1]}
    opened.verify()
    opened.close()


@pytest.fixture
def still(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Beside:
    """The same without processes: two versions served, the second does, and its replicas are wanted."""
    registry, state = tmp_path / ".twofold-registry", tmp_path / ".twofold"
    engine = EngineSettings("", "float32", 1, 256, 64)
    settings = ServiceSettings(engine, 2, 8, 1, 0, 0, registry=str(registry.resolve()), registered="chat")
    Registry(registry, make=True).close()
    made = Beside(tmp_path, registry, state, settings)
    opened, store = made.opened(), Store(state)
    for number in (1, 2):
        opened.promote(made.pushed(number), "ann", "", Limits())
    name = opened.find("chat:2").digest.replace(":", "-")
    opened.close()
    store.want(to_json(settings), name, to_json(engine), [ReplicaRow("replica-0", name)])
    store.keep("version", name)
    store.close()
    monkeypatch.setattr(trials, "serving_version", lambda state: Store(state).kept("version"))
    return made


def wanted(beside: Beside) -> tuple[dict[str, int], str]:
    """What aliases mean, and what the service is to run."""
    opened, store = beside.opened(), Store(beside.state)
    try:
        served = store.kept("version")
        texts = {each.digest.replace(":", "-"): each.text for each in opened.tables.versions("chat")}
        return opened.tables.aliases("chat"), texts[served]
    finally:
        opened.close()
        store.close()


def fails(_: object, *__: object) -> None:
    raise RunError("the disk is full")


@pytest.mark.parametrize("step", ["taken", "engine_with"])
def test_a_move_whose_files_cannot_be_made_ready_moves_nothing(
    step: str, still: Beside, monkeypatch: pytest.MonkeyPatch
) -> None:
    third = still.pushed(3)
    monkeypatch.setattr(promoting, step, fails)
    lines = len(still.log())
    for asked in (
        lambda: roll_back_version("chat", still.registry, "bob", "", "serving"),
        lambda: promote_version(third, still.registry, "ann", "", "serving", "", 1),
    ):
        with pytest.raises(RunError, match="disk is full"):
            asked()
    assert wanted(still) == ({"serving": 2}, "chat:2") and len(still.log()) == lines


def test_a_move_whose_replicas_do_not_come_is_put_back_with_its_service(
    still: Beside, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[dict[str, int], str]] = []

    def waits(*_: object) -> None:
        seen.append(wanted(still))
        fails(_)

    monkeypatch.setattr(trials, "until_all_run", waits)
    third = still.pushed(3)
    for asked, number in (
        (lambda: roll_back_version("chat", still.registry, "bob", "", "serving"), 1),
        (lambda: promote_version(third, still.registry, "ann", "", "serving", "", 1), 3),
    ):
        with pytest.raises(RunError, match=f"chat:{number} did not come.* what served before serves on"):
            asked()
        assert seen[-1] == ({"serving": number}, f"chat:{number}")
        assert wanted(still) == ({"serving": 2}, "chat:2")
    monkeypatch.setattr(trials, "until_all_run", lambda *_: [])
    assert roll_back_version("chat", still.registry, "bob", "", "serving").move.version == 1
    assert wanted(still) == ({"serving": 1}, "chat:1")


def test_what_a_rule_refuses_is_not_even_taken_out(still: Beside, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = still.opened()
    opened.push(model(still.folder / "own", 7), "chat", "ann")
    opened.close()
    monkeypatch.setattr(promoting, "taken", fails)
    with pytest.raises(ReleaseRefusedError):
        promote_version("chat:3", still.registry, "ann", "mine", "serving", "", 1)
    assert still.log()[-1]["what"] == "refused promotion to serving"


def test_r_156_one_digest_leads_from_data_to_run_checkpoint_and_replicas(beside: Beside) -> None:
    """What `up` trained is a version that names all it came of; where it serves, the same digest answers."""
    run = beside.folder / "run"
    for step, state in ((4, b"old"), (8, b"new")):
        folder = run / "checkpoints" / f"step-{step:06d}"
        folder.mkdir(parents=True)
        (folder / "__0_0.distcp").write_bytes(state)
        (folder / ".metadata").write_bytes(os.urandom(8))  # which names the save
        complete(folder, KEY)
    trained = model(run / "hf", 9)
    (trained / "lineage.json").write_text(json.dumps({"data": {"digest": "texts"}}))
    write_sealed(trained, trained.name, KEY)
    opened = beside.opened()
    digest = registered(opened, "tiny", trained, KEY).version.digest
    traced = dict(trace_version("tiny", beside.registry).steps)
    assert list(traced) == ["tiny:1", "data", "run", "checkpoint"] and traced["tiny:1"] == digest
    assert traced["run"] == f"sha256:{sha256_of(trained / 'lineage.json')}"
    (run / "checkpoints" / "step-000008" / "__0_0.distcp").write_bytes(b"other")
    complete(run / "checkpoints" / "step-000008", KEY)
    assert (
        dict(opened.trace(registered(opened, "tiny", trained, KEY).version.text))["checkpoint"]
        != (traced["checkpoint"])
    )

    served = trace_version("chat:1", beside.registry)
    assert served.steps[0] == ("chat:1", opened.find("chat@serving").digest)
    assert served.served_at == f"http://127.0.0.1:{beside.settings.port}, by replica-0, replica-1"
    assert beside.versions() == {served.steps[0][1].replace(":", "-")}
    opened.close()
    bring_down(beside.state)
    assert trace_version("chat:1", beside.registry).served_at == ""


def test_a_replica_whose_model_was_altered_does_not_start_until_it_is_taken_out_anew(beside: Beside) -> None:
    folder = Path(beside.settings.engine.artefact)
    weights = folder / "model.safetensors"
    good = weights.read_bytes()
    weights.chmod(0o644)
    weights.write_bytes(good[:-1] + b"!")
    [child] = running(beside.state, "replica-0", exact=True)
    os.kill(child.process_id, signal.SIGKILL)
    log, deadline_s = log_path(beside.state, "replica-0"), time.monotonic() + PATIENCE_S
    while "has other bytes" not in log.read_text("utf-8", "replace"):
        assert time.monotonic() < deadline_s
        time.sleep(0.05)
    text = log.read_text("utf-8", "replace")
    assert "error[E-altered]: `model.safetensors` has other bytes than when it was written" in text
    assert len(beside.versions()) == 1  # the other one serves
    told: list[str] = []
    opened = beside.opened()
    taken(beside.state, opened, "chat@serving", told.append)
    opened.close()
    assert weights.read_bytes() == good and "taken out of the registry anew" in told[0]
    while service_status(beside.state, 5).ready_count < 2:
        assert time.monotonic() < deadline_s + PATIENCE_S
        time.sleep(0.1)
