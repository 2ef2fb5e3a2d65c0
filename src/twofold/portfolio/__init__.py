"""A year of runs and services on one portfolio of capacity: demands, offers, the solved lease, its bill."""
