"""What both sans-IO machines share: the protocol of a machine, records, and lines of a log."""
