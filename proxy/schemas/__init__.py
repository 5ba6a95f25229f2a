"""Validation of the JSON Schemas that clients send."""
