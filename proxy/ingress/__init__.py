"""The way of a request's bytes into the gateway: who sends them, within which limits, and whether the sender is still
there."""
