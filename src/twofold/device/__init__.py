"""Measures this machine as a device that plans use."""
