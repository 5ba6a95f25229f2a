"""Calls in forms that were not taught, and the format `auto`, which is made of all others."""
