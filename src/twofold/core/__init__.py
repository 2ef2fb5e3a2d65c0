"""Quantities in and out, estimates, and the tree of errors."""
