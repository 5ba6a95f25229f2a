"""The chain of middlewares, the unsent reply, and the stages that change its answer."""
