"""The gateway's logs, metrics and traces."""
