"""Tool-call formats: how calls are written into a prompt, and how they look in answers."""
