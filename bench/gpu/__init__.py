"""One GPU measured against what was predicted for it beforehand: cases, predictions, measurement, page."""
