"""The ways from the bytes of a model server to the bytes of the client."""
