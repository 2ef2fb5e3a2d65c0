"""Screens as lines of text, at most 100 columns wide: a plan, an estimate, a rehearsal, a claim."""
