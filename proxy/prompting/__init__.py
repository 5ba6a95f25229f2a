"""Prompts for models that only read and write text: the tools, and the conversation so far."""
