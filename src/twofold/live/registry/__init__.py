"""Keeps models by what they hold: an OCI layout, who released which when, and what refuses a release."""
