"""The world of a training cluster: nodes, jobs, faults, the pool shared with serving, and its figures."""
