"""Fits, predictions and errors against measured tables: files in, files out. Only fits need scipy."""

from twofold.measure.predict_inference import predict_inference
from twofold.measure.predict_training import predict_training

__all__ = ["predict_inference", "predict_training"]
