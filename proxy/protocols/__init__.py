"""Protocols: the wire forms of requests and answers. `base.py` defines what a protocol is."""
