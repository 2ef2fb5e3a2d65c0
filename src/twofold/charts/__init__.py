"""Pictures of results: charts as plain data, drawn as static SVG for pages and as text for terminals."""
