"""The protocol OpenAI Chat Completions."""
