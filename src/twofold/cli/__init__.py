"""The command line: a verb parses its words, calls one function of `app` and renders what it returns."""

from twofold.cli.entry import main

__all__ = ["main"]
