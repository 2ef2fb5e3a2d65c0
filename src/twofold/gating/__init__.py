"""The gate of a planned service, made from plan and policies alike for the twin and for live."""
