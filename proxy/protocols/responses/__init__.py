"""The protocol OpenAI Responses."""
