"""Fits, predictions, device benchmarks, the doctor's rules: files and records in, files and records out."""

from twofold.measure.calibration import calibrate
from twofold.measure.device import Measured, measure
from twofold.measure.device_figures import figures
from twofold.measure.device_files import (
    DeviceRecord,
    Figure,
    FitError,
    Identity,
    digest_of,
    notes_about,
    read_device,
    this_identity,
    write_device,
)
from twofold.measure.device_rows import FittedDevice, fit_device
from twofold.measure.doctor import diagnose
from twofold.measure.evidence import Evidence, gather
from twofold.measure.facets import FACETS
from twofold.measure.gate import Gate, compare, gate_figures, read_figures
from twofold.measure.goals import Judged, Reached, judge
from twofold.measure.lint import Finding, lint
from twofold.measure.predict_inference import predict_inference
from twofold.measure.predict_training import predict_training
from twofold.measure.scores import Score
from twofold.measure.truth import read_rows
from twofold.measure.validation import (
    FIGURES,
    Column,
    Data,
    Line,
    Refusals,
    half_of,
    kept_fits,
    lines_of,
    read_data,
)

__all__ = [
    "FACETS",
    "FIGURES",
    "Column",
    "Data",
    "DeviceRecord",
    "Evidence",
    "Figure",
    "Finding",
    "FitError",
    "FittedDevice",
    "Gate",
    "Identity",
    "Judged",
    "Line",
    "Measured",
    "Reached",
    "Refusals",
    "Score",
    "calibrate",
    "compare",
    "diagnose",
    "digest_of",
    "figures",
    "fit_device",
    "gate_figures",
    "gather",
    "half_of",
    "judge",
    "kept_fits",
    "lines_of",
    "lint",
    "measure",
    "notes_about",
    "predict_inference",
    "predict_training",
    "read_data",
    "read_device",
    "read_figures",
    "read_rows",
    "this_identity",
    "write_device",
]
