"""Puts an endpoint under load and measures it; reads the result files of other load generators."""
