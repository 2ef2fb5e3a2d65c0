"""Claims that circulate as predicates over named quantities, their language, and computed verdicts."""
