"""Our errors beside those of two baselines and of other people's predictors, on exactly the same rows."""
