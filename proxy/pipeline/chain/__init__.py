"""The chain of middlewares."""
