"""Training: layouts, memory and step time of candidates, the search over them, the run around a step."""
