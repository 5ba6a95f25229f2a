"""Tool-call formats: how calls are written into a prompt and what they look like when they come back."""
