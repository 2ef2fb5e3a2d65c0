"""Trains what the plan says: the launcher, its workers, checkpoints, text, and the artefact at the end."""
