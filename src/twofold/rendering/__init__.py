"""A plan as files that run: command lines of engines and trainers, and what starts them on machines."""
