"""Fits, predictions, device benchmarks, the doctor's rules: files and records in, files and records out."""
