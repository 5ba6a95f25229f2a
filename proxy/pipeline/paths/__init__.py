"""Paths from the bytes of a model server to the bytes for the client."""
