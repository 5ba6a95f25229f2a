"""Measurements of the scanner, the wire formats and the whole gateway; see README.md."""
