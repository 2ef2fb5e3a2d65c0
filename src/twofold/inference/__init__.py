"""Serving: what fits, how long a step takes, what a load costs, how many replicas meet an objective."""
