"""Worlds and sweeps that benches and tests share."""
