"""The chain of middlewares, the reply that is not sent yet, and the stages of its answer."""
