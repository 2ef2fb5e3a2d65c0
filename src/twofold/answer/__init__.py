"""One way to ask how fast, how much, whether it fits: this work on that machine, with ranges and reasons."""
