"""Measurements of the scanner, the wire and the whole gateway; see README.md."""
