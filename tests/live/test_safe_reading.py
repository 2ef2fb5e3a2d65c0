"""A pickle that was planted in a checkpoint, its manifest made anew, is named and never run."""

import os
import pickle
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest

from twofold.core.errors import AlteredError
from twofold.live.training.checkpoints import METADATA, complete, step_folder, survey

torch = pytest.importorskip("torch", reason="needs the extra [train]: `make extras`")
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
    complete(folder)
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


def test_a_pickle_planted_in_the_index_is_refused_by_its_name(tmp_path: Path) -> None:
    folder = saved(step_folder(tmp_path, 3), state())
    (folder / METADATA).write_bytes(pickle.dumps(Planted(tmp_path / "ran")))
    complete(folder)  # whoever plants one makes the manifest fit
    assert survey(tmp_path)[0] == folder
    with pytest.raises(AlteredError, match=r"names `posix.mkdir`"):
        loaded(folder, state())
    assert not (tmp_path / "ran").exists()


def test_a_pickle_planted_in_a_value_is_refused_by_its_name(tmp_path: Path) -> None:
    folder = saved(tmp_path / "step-000003", state(scale=Planted(tmp_path / "ran")))
    with pytest.raises(AlteredError, match="`scale` of a checkpoint holds more than numbers"):
        loaded(folder, state(scale=1.0))
    assert not (tmp_path / "ran").exists()
