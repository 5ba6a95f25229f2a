"""Wire forms of requests and answers. `base.py` says what a protocol is."""
