"""A plan in the digital twin: from plan and scenario to worlds, and from runs to figures and verdicts."""
