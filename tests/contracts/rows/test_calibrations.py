"""The file of a calibration: read back as written, refused when it is another's or was altered."""

import json
from datetime import date
from pathlib import Path

import pytest

from twofold.contracts.rows.calibrations import (
    CalibratedFactor,
    CalibratedFigure,
    CalibratedStack,
    Calibration,
    RefusedRow,
)
from twofold.core.errors import AlteredError, FileError

CALIBRATION = Calibration(
    measurements="rows.csv",
    calibrated_on=date(2026, 11, 1),
    constants_version=7,
    constants_digest="abc",
    stacks=(
        CalibratedStack(
            half="training",
            accelerator="H100-SXM5-80GB",
            software="fsdp",
            era="",
            version="torchtitan 0.2",
            kinds=("dense",),
            rows=10,
            factors=(CalibratedFactor("compute", 0.91, 0.88, 0.95, 0.87, 1.15),),
            log_covariance=((0.001,),),
            figures=(CalibratedFigure("step_time_s", 10, 0.08, 0.04, 0.05, 0.25, 0.17),),
        ),
    ),
    refused=(RefusedRow(4, "faster than the hardware"),),
)


def written(folder: Path, **changes: object) -> Path:
    path = folder / "calibration.json"
    path.write_text(json.dumps({"schema": Calibration.schema, **CALIBRATION.as_data(), **changes}))
    return path


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    found = Calibration.read(written(tmp_path))
    assert found.as_data() == CALIBRATION.as_data()
    assert found.stacks == CALIBRATION.stacks
    assert found.rows == 10
    assert found.digest


@pytest.mark.parametrize(
    "changes", [{"measurements": "other.csv"}, {"constants_version": 8}, {"stacks": []}, {"digest": "0"}]
)
def test_a_file_that_was_altered_is_refused(tmp_path: Path, changes: dict[str, object]) -> None:
    with pytest.raises(AlteredError, match="digest") as caught:
        Calibration.read(written(tmp_path, **changes))
    assert "twofold calibrate" in caught.value.hint


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        "{}",
        '{"schema": "twofold/plan/1"}',
        '{"schema": "twofold/calibration/1"}',
        "[" * 9999,
    ],
)
def test_a_file_that_is_no_calibration_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "calibration.json"
    path.write_text(text)
    with pytest.raises(FileError, match="is not a calibration"):
        Calibration.read(path)


def test_a_folder_in_its_place_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileError):
        Calibration.read(tmp_path)
