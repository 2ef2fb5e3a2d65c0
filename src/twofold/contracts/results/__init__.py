"""What verbs answer, as data: the plan with its parts, a rehearsal, a sweep, the live loop."""
