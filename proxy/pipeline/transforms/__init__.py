"""Stages: what the gateway does to the events of an answer."""
