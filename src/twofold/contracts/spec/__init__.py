"""The spec: its typed models, its reader with places, its defaults, schema, starters and reference page."""
