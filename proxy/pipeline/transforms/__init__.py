"""Stages that change or examine the events of an answer."""
