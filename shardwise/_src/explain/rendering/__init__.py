"""Reports as text and HTML."""
