"""One function per verb, typed, without printing; the command line calls them, `twofold` re-exports them."""
