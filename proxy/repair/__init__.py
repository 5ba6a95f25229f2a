"""Repair of JSON and other values that a model wrote with small mistakes."""
