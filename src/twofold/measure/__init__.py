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
from twofold.measure.predict_inference import predict_inference
from twofold.measure.predict_training import predict_training
from twofold.measure.truth import read_rows

__all__ = [
    "DeviceRecord",
    "Figure",
    "FitError",
    "FittedDevice",
    "Identity",
    "Measured",
    "calibrate",
    "diagnose",
    "digest_of",
    "figures",
    "fit_device",
    "measure",
    "notes_about",
    "predict_inference",
    "predict_training",
    "read_device",
    "read_rows",
    "this_identity",
    "write_device",
]
