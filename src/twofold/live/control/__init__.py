"""Keeps a service as wanted: the controller and its store, engines, a watchdog, and what `status` tells."""
