"""Limits on requests, tokens and concurrency: `base.py` says what is counted and how; one file for each place to
count."""
