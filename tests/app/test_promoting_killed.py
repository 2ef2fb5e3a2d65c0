"""Kill -9 at every statement of a promotion and of a roll-back: the registry and the service say the same
(INV-40).

The commands are real ones in processes that end themselves by SIGKILL before the n-th question to either
file; what is there then is settled by what the controller does, and by the next command.
"""

import asyncio
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("uvicorn", reason="needs the extra [live]: `make extras`")
pytest.importorskip("aiohttp", reason="needs the extra [live]: `make extras`")
pytest.importorskip("tokenizers", reason="needs the extra [train]: `make extras`")

from tests.app.test_promoting import GATE, Beside, beside, still
from tests.public_key import PUBLIC_KEY
from twofold.app import promoting
from twofold.core.data import to_json
from twofold.core.errors import RunError, ValueRefusedError
from twofold.live.control import moving, recording, trials
from twofold.live.control.status import service_status
from twofold.live.control.store import OFFERED, Store
from twofold.live.registry.registry import Registry, ReleaseRefusedError
from twofold.live.registry.stores import TablesError

__all__ = ["beside", "still"]  # fixtures
DYING = """
import os, shutil, signal, sys
from contextlib import contextmanager
from pathlib import Path
from twofold.app import promoting
from twofold.core.errors import RunError
from twofold.live.control import moving, trials
from twofold.live.control.store import Store
home, copies, call, comes = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], sys.argv[4] == "comes"
trials.serving_version = lambda state: Store(state).kept("version")
def until_all_run(*_):
    if not comes:
        raise RunError("the disk is full")
trials.until_all_run = until_all_run
alone, left = moving.alone, 0
def dies(frame, event, called):
    global left
    if event == "c_call" and called.__name__ == "execute":
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
@contextmanager
def watched(state):  # what is before it moves nothing
    sys.setprofile(dies)
    with alone(state) as store:
        yield store
moving.alone = watched
registry = home / ".twofold-registry"
shutil.copytree(home, copies / "first")
for count in range(1000):
    child = os.fork()
    if not child:
        left = count
        try:
            eval(call)
        except RunError:
            assert not comes
        os._exit(0)
    ended = os.waitpid(child, 0)[1]
    assert ended in (0, signal.SIGKILL), ended
    shutil.copytree(home, copies / str(count))
    if not ended:
        break
    shutil.rmtree(home)
    shutil.copytree(copies / "first", home)
"""
BACK = "promoting.roll_back_version('chat', registry, 'bob', '', 'serving')"
ON = "promoting.promote_version('chat:3', registry, 'ann', '', 'serving', '', 1)"


def restored(folder: Path, copy: Path) -> None:
    shutil.rmtree(folder)
    shutil.copytree(copy, folder)


def said(beside: Beside) -> tuple[str, str, str, str]:
    """What serves and what is tried, as the registry has it and as the service has it."""
    opened, store = Registry(beside.registry), Store(beside.state)
    try:
        opened.verify()
        serving, candidate = (
            opened.meant("chat", alias).replace(":", "-") for alias in ("serving", "candidate")
        )
        return serving, store.kept("version"), candidate, store.kept(OFFERED)
    finally:
        opened.close()
        store.close()


def is_one(beside: Beside) -> bool:
    serving, served, candidate, offered = said(beside)
    return serving == served and candidate == offered


@pytest.mark.parametrize(
    ("call", "comes", "is_tried"),
    [
        pytest.param(BACK, True, False, id="a roll-back"),
        pytest.param(ON, True, False, id="a promotion at once"),
        pytest.param(ON, True, True, id="a candidate"),
        pytest.param(ON, False, False, id="a promotion that does not come"),
    ],
)
def test_a_kill_at_any_statement_leaves_an_alias_and_a_service_that_become_one(
    call: str, comes: bool, is_tried: bool, still: Beside, tmp_path_factory: pytest.TempPathFactory
) -> None:
    still.pushed(3)
    store = Store(still.state)
    if is_tried:
        store.keep("service", to_json(promoting.replace(still.settings, gate=GATE)))
    store.close()
    assert is_one(still)
    copies = tmp_path_factory.mktemp("copies")
    told = [str(still.folder), str(copies), call, "comes" if comes else "fails"]
    done = subprocess.run(
        [sys.executable, "-c", DYING, *told], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    last = max(int(each.name) for each in copies.iterdir() if each.name != "first")
    assert last > 20
    ends, halves, asked = set[tuple[str, ...]](), 0, set[tuple[str, ...]]()
    for count in range(last + 1):
        restored(still.folder, copies / str(count))
        if not is_one(still):
            halves += 1
            assert moving_left(still)
        if moving_left(still) and said(still) not in asked:  # by the controller, wherever it looks first
            asked.add(said(still))
            assert asyncio.run(recording.settle_left(still.state, trials.wanted_service(still.state)))
            assert is_one(still) and not moving_left(still)
            restored(still.folder, copies / str(count))
        promoting._settled(still.opened(), "chat", still.state)  # as the next command does first
        assert is_one(still) and not moving_left(still)
        ends.add(said(still))
    assert halves  # it died between the two as well
    assert len(ends) == 2 or not comes
    restored(still.folder, copies / str(last))
    assert is_one(still)


def moving_left(beside: Beside) -> bool:
    store = Store(beside.state)
    try:
        return moving.left_over(store) is not None
    finally:
        store.close()


def test_the_next_roll_back_after_a_kill_goes_back_from_what_the_alias_means(
    still: Beside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed after the alias moved: it did go back, and twice goes back twice."""
    monkeypatch.setattr(trials, "until_all_run", lambda *_: None)
    still.pushed(3)
    promoting.promote_version("chat:3", still.registry, "ann", "", "serving", "", 1)

    class KilledError(BaseException):
        """Nothing of ours catches it."""

    def killed(*_: object) -> None:
        raise KilledError

    monkeypatch.setattr(moving, "_follow", killed)
    with pytest.raises(KilledError):
        promoting.roll_back_version("chat", still.registry, "bob", "", "serving")
    monkeypatch.undo()
    monkeypatch.setattr(trials, "until_all_run", lambda *_: None)
    monkeypatch.setattr(trials, "serving_version", lambda state: Store(state).kept("version"))
    assert not is_one(still)
    back = promoting.roll_back_version("chat", still.registry, "bob", "", "serving")
    assert back.move.version == 1 and is_one(still)


def test_the_controller_goes_on_with_what_was_killed_while_the_service_runs(
    beside: Beside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody asks again: what is a candidate is tried, and served."""
    second = beside.pushed(2)

    class KilledError(BaseException):
        """Nothing of ours catches it."""

    def killed(*_: object) -> None:
        raise KilledError

    monkeypatch.setattr(moving, "_follow", killed)
    with pytest.raises(KilledError):
        promoting.promote_version(second, beside.registry, "ann", "better", "serving", "", 1)
    opened = beside.opened()
    assert opened.tables.aliases("chat") == {"serving": 1, "candidate": 2}
    beside.under_load_until(lambda: opened.tables.aliases("chat") == {"serving": 2})
    name = opened.find(second).digest.replace(":", "-")
    beside.under_load_until(lambda: beside.versions() == {name})
    told = [each.what for each in service_status(beside.state, 40).happened]
    assert sum("of which nobody told the service" in each for each in told) == 1 and not moving_left(beside)
    opened.close()


def test_what_somebody_else_moved_meanwhile_is_not_put_back(
    still: Beside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Replicas that did not come, because somebody rolled back while they were waited for."""

    def waits(*_: object) -> None:
        monkeypatch.setattr(trials, "until_all_run", lambda *_: None)
        promoting.roll_back_version("chat", still.registry, "bob", "", "serving")
        raise RunError("the service was not whole again")

    still.pushed(3)
    monkeypatch.setattr(trials, "until_all_run", waits)
    with pytest.raises(promoting.BusyError, match="moved again meanwhile"):
        promoting.promote_version("chat:3", still.registry, "ann", "", "serving", "", 1)
    assert is_one(still) and still.opened().find("chat@serving").text == "chat:2"


def test_a_move_whose_registry_fails_after_it_is_a_move(
    still: Beside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the answer to a commit is lost: the alias means it, so the service follows."""
    monkeypatch.setattr(trials, "until_all_run", lambda *_: None)
    still.pushed(3)
    real = Registry.promote

    def lost(opened: Registry, *words: Any) -> None:
        real(opened, *words)
        raise TablesError("the server closed the connection")

    monkeypatch.setattr(Registry, "promote", lost)
    with pytest.raises(TablesError):
        promoting.promote_version("chat:3", still.registry, "ann", "", "serving", "", 1)
    assert is_one(still) and not moving_left(still)
    assert still.opened().find("chat@serving").text == "chat:3"

    def refused(*_: object) -> None:
        raise TablesError("nobody listens there")

    monkeypatch.setattr(Registry, "promote", refused)
    with pytest.raises(TablesError):
        promoting.promote_version(still.pushed(4), still.registry, "ann", "", "serving", "", 1)
    assert is_one(still) and still.opened().find("chat@serving").text == "chat:3"


def test_an_undo_that_is_killed_is_done_where_the_alias_meant_nothing_before(
    still: Beside, monkeypatch: pytest.MonkeyPatch
) -> None:
    still.pushed(3)
    opened, served = still.opened(), said(still)[1]
    opened.tables.clear("chat", "serving", "ann", "nothing serves by it")
    real = moving._follow

    class KilledError(BaseException):
        """Nothing of ours catches it."""

    def comes_not(*_: object) -> None:
        def killed(*_: object) -> None:
            raise KilledError

        monkeypatch.setattr(moving, "_follow", killed)
        raise RunError("the service was not whole again")

    monkeypatch.setattr(trials, "until_all_run", comes_not)
    with pytest.raises(KilledError):
        promoting.promote_version("chat:3", still.registry, "ann", "", "serving", "", 1)
    assert "serving" not in opened.tables.aliases("chat") and said(still)[1] != served
    monkeypatch.setattr(moving, "_follow", real)
    assert asyncio.run(recording.settle_left(still.state, trials.wanted_service(still.state)))
    assert said(still)[:2] == ("", served) and not moving_left(still)


def test_an_intent_of_another_build_is_forgotten_and_said_so(still: Beside) -> None:
    store = Store(still.state)
    for text in ("{", '{"alias": "serving"}', "7"):
        store.keep(moving.MOVING, text)
        assert asyncio.run(recording.settle_left(still.state, trials.wanted_service(still.state)))
        assert not store.kept(moving.MOVING)
        assert "cannot be read, and is forgotten" in store.happened(1)[0].what
    store.close()


def test_the_key_that_the_spec_names_is_not_replaced_by_who_promotes(still: Beside, tmp_path: Path) -> None:
    store = Store(still.state)
    limits = promoting.replace(still.settings.limits, signed_by=str(tmp_path / "ours.pub"))
    store.keep("service", to_json(promoting.replace(still.settings, limits=limits)))
    store.close()
    (tmp_path / "ours.pub").write_text(PUBLIC_KEY)
    words = (still.pushed(3), still.registry, "ann", "", "serving", "", 1)
    with pytest.raises(ValueRefusedError, match=r"asks for a signature of `.*ours\.pub`, not of"):
        promoting.promote_version(*words, tmp_path / "theirs.pub")
    with pytest.raises(ReleaseRefusedError) as caught:
        promoting.promote_version(*words, tmp_path / "ours.pub")
    assert "not signed by" in str(caught.value.lines)
    assert is_one(still)
