"""Runs the plan for real on this machine: trainer, artefacts, engines, gateway, load generator.

Below are child processes and the code that starts, watches and measures them. Heavy libraries are imported by
the children, or inside functions.
"""
