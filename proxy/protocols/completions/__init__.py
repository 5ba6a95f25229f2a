"""The older text protocol, towards backends only, and the chat templates that it needs."""
