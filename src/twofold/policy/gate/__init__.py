"""The gate of a serving fleet: admits, queues, routes, breaks, retries, scales and releases. Sans-IO."""
