"""JSON and other values that a model wrote nearly right."""
