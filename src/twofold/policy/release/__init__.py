"""Whether a model may be released: rules over what was evaluated and who approved it. Sans-IO."""
