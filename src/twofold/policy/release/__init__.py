"""Whether a model may be released, by rules over what was measured; a watch afterwards. Sans-IO."""
