"""A queue of jobs on this machine's slots: a driver of `policy.cluster`, its log, gangs of processes."""
