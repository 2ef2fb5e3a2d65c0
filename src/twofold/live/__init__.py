"""Runs the plan for real on this machine, in four rooms: training, gateway, loads, control.

Here is what they share: child processes, files of lines, server-sent events. Heavy libraries are imported by
the children, or inside functions.
"""
