"""The protocol Anthropic Messages: see `protocol`."""
