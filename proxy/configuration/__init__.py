"""Loads the configuration from files, the environment and flags, and reports all its mistakes at once."""
