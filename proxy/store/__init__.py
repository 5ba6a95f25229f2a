"""Stores responses between requests. `base.py` defines the interface; there is one file for each kind of store."""
