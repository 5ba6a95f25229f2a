"""Stored responses and conversations, and responses that are made in the background."""
