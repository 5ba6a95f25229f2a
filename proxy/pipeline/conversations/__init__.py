"""Stored responses and conversations, background responses, and results of server-side tools."""
