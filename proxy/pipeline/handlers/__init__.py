"""Requests that the gateway answers without a model: models, token counts, its own data."""
