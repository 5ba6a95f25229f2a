"""What a model that only writes text is told: the tools, and the conversation so far."""
