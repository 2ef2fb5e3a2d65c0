"""Power and energy of one device."""

from twofold.perf.types import Device, Floats


def power_w(device: Device, utilisation_fraction: Floats) -> Floats:
    """Watts that one device draws while a share of its time goes into kernels.

    Formula  idle + (tdp − idle)·utilisation
    Why      Dynamic power follows switching activity; the rest flows anyway.
    Shapes   utilisation broadcasts.
    Units    W; utilisation 0–1.
    Source   Fan, Weber & Barroso 2007, power provisioning: linear in utilisation.
    Limits   0: idle; 1: the vendor's limit.
    """
    return device.idle_w + (device.tdp_w - device.idle_w) * utilisation_fraction


def energy_j(device: Device, duration_s: Floats, utilisation_fraction: Floats) -> Floats:
    """Joules over `duration_s` at that utilisation."""
    return power_w(device, utilisation_fraction) * duration_s
