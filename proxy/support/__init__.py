"""General-purpose helpers, independent of tools, models and requests."""
