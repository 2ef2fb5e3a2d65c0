"""Results as one page to mail: HTML that needs nothing else, and Markdown for a pull request."""
