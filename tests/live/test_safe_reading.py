"""A pickle planted in a checkpoint is refused by its seal; were it sealed, it is named and never run."""

import os
import pickle
from collections import OrderedDict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from twofold.core.errors import AlteredError
from twofold.live.training.artefact import write_manifest
from twofold.live.training.checkpoints import METADATA, complete, step_folder, survey
from twofold.live.training.sealing import UnsealedError
from twofold.live.training.training_record import read_events

torch = pytest.importorskip("torch", reason="needs the extra [train]: `make extras`")
KEY = b"k" * 32
pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


class Planted:
    """Makes a file when it is unpickled, as it could do anything else."""

    def __init__(self, witness: Path) -> None:
        self.witness = witness

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.witness),)


def state(**more: Any) -> dict[str, Any]:
    """What a run keeps: tensors, nested numbers, and random states."""
    groups = [{"lr": 0.1, "betas": (0.9, 0.95), "params": ["w"], "fused": True}]
    return {
        "model": OrderedDict(w=torch.arange(12.0).reshape(3, 4)),
        "optimiser": {"state": {"w": {"step": torch.tensor(3.0)}}, "param_groups": groups},
        "scale": {"scale": 2.0},
        "random-0": torch.get_rng_state(),
        **more,
    }


def saved(folder: Path, held: dict[str, Any]) -> Path:
    import torch.distributed.checkpoint as dcp

    dcp.save(held, checkpoint_id=folder, no_dist=True)
    complete(folder, KEY)
    return folder


def loaded(folder: Path, into: dict[str, Any]) -> dict[str, Any]:
    from twofold.live.training.safe_reading import SafeReader, load_state

    reader = SafeReader(folder)
    reader.read_metadata()
    load_state(into, reader)
    return into


def test_what_was_saved_is_what_is_read(tmp_path: Path) -> None:
    folder = saved(tmp_path / "step-000003", state())
    empty = state()
    empty["model"]["w"].zero_()
    empty["scale"]["scale"] = 0.0
    empty["optimiser"]["param_groups"][0]["lr"] = 0.0
    read = loaded(folder, empty)
    assert torch.equal(read["model"]["w"], state()["model"]["w"])
    assert (read["scale"], read["optimiser"]["param_groups"]) == (
        state()["scale"],
        state()["optimiser"]["param_groups"],
    )


@pytest.mark.parametrize("is_newest", [True, False])
def test_a_pickle_planted_in_a_checkpoint_is_refused_by_its_seal_and_nothing_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_newest: bool
) -> None:
    """Whoever plants one makes the manifest fit: our key did not seal that. All that a resuming rank does."""
    from twofold.live.training import train_worker

    run, opened = tmp_path / "run", []
    older = saved(step_folder(run / "checkpoints", 3), state())
    planted = saved(step_folder(run / "checkpoints", 6), state()) if is_newest else older
    (planted / METADATA).write_bytes(pickle.dumps(Planted(tmp_path / "ran")))
    write_manifest(planted)
    monkeypatch.setattr(train_worker, "_load", lambda _, folder: opened.append(folder))
    monkeypatch.setattr(train_worker.dist, "broadcast", lambda *_, **__: None)
    order: Any = SimpleNamespace(run=run, rank=0, launch=1, attempt=0, key=KEY, job={"branch_from": ""})
    trained: Any = SimpleNamespace(order=order, tell=lambda *_, **__: None)
    if is_newest:
        assert train_worker.resume(trained) == 3 and opened == [older]
        [refused] = read_events(run, "refused")
        assert "is not sealed by our key" in refused["reason"] and not planted.exists()
    else:
        with pytest.raises(UnsealedError, match="not sealed by our key"):
            train_worker.resume(trained)
        assert opened == [] and planted.exists()
    order.run, order.job = tmp_path / "branch", {"branch_from": str(planted)}
    if not is_newest:
        with pytest.raises(UnsealedError, match="not sealed by our key"):
            train_worker.resume(trained)
        assert opened == []
    assert not (tmp_path / "ran").exists()


def test_a_pickle_in_an_index_is_refused_by_its_name(tmp_path: Path) -> None:
    folder = saved(step_folder(tmp_path, 3), state())
    (folder / METADATA).write_bytes(pickle.dumps(Planted(tmp_path / "ran")))
    complete(folder, KEY)  # by whoever has the key
    assert survey(tmp_path, KEY)[0] == folder
    with pytest.raises(AlteredError, match=r"names `posix.mkdir`"):
        loaded(folder, state())
    assert not (tmp_path / "ran").exists()


def test_a_pickle_planted_in_a_value_is_refused_by_its_name(tmp_path: Path) -> None:
    folder = saved(tmp_path / "step-000003", state(scale=Planted(tmp_path / "ran")))
    with pytest.raises(AlteredError, match="`scale` of a checkpoint holds more than numbers"):
        loaded(folder, state(scale=1.0))
    assert not (tmp_path / "ran").exists()
