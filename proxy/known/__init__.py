"""Conversations that come again: what is known of one from its earlier requests."""
