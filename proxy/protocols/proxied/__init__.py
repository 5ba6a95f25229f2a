"""Paths that are passed through, such as `/v1/embeddings`."""
