"""Operators, collectives and energy of one device and its network, from fitted constants."""
