"""Every outside schema as data without behaviour, and the readers that say where a file is wrong."""
