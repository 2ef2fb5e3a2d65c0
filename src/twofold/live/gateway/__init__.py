"""Stands between clients and replicas: drives `policy.gate` over sockets, counts and logs what it did."""
