"""What both worlds of the digital twin share: the heap of events, histograms, shared storage."""
