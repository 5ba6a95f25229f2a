"""Limits on requests, tokens and concurrency. `base.py` defines the counts; each other ledger module stores them in one
place."""
