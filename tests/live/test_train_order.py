"""Orders that people write by hand: what is wrong with one is said in a line."""

import json
from pathlib import Path

import pytest

from twofold.core.errors import InputError
from twofold.live.training.train_order import read_order

WHOLE = {"name": "f", "rank_count": 2, "steps": 3, "sequence_tokens": 4, "global_batch_sequences": 2}


def read(folder: Path, said: object):
    (folder / "run.json").write_text(said if isinstance(said, str) else json.dumps(said))
    return read_order(folder / "run.json", folder / "run", folder / "config.json")


def test_an_order_is_a_job_in_its_folder(tmp_path: Path) -> None:
    job = read(tmp_path, {**WHOLE, "peak_learning_rate": 1})
    assert (job.steps, job.peak_learning_rate, job.precision) == (3, 1, "fp32")
    assert (job.folder, job.model_config) == (tmp_path / "run", tmp_path / "config.json")


@pytest.mark.parametrize(
    ("said", "says"),
    [
        ("\xff", "is no order"),
        ({**WHOLE, "precison": "bf16"}, "`precison` is no key of an order; did you mean `precision`?"),
        ({**WHOLE, "folder": "elsewhere"}, "`folder` is no key"),
        ({"name": "f"}, "needs `rank_count`, `steps`, `sequence_tokens`, `global_batch_sequences`"),
        ({**WHOLE, "steps": "three"}, "three"),
        ([1], "it is no mapping"),
        ("{", "is no order"),
        ("[" * 100_000, "is no order"),
    ],
)
def test_what_is_wrong_with_one_is_said(said: object, says: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read(tmp_path, said)
    assert says in caught.value.message and "train.md" in caught.value.hint


def test_one_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_order(tmp_path / "absent.json", tmp_path, tmp_path)
