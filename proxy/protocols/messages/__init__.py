"""Anthropic Messages: see `protocol`."""
