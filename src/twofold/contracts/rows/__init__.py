"""Rows that users bring: traces of requests and jobs, measurements, and what a calibration found."""
