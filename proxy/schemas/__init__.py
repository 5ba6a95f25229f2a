"""JSON Schemas that clients send."""
