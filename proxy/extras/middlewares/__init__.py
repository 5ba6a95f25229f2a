"""Built-in middlewares that are not in the default chain."""
