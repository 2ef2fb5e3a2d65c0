"""Runs the plan for real on this machine, in rooms: training, gateway, loads, control, jobs, registry.

Here is what they share: child processes, their watchdog, files of lines, server-sent events. Heavy libraries
are imported by the children, or inside functions.
"""
