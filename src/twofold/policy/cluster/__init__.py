"""The brain of a training cluster: queues gangs, places, preempts, checkpoints, recovers. Sans-IO."""
