"""Twofold plans both halves of AI infrastructure, training and serving, from one spec."""

__version__ = "0.1.0"
