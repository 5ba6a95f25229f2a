"""Captures: recorded exchanges, which can be downloaded, viewed in the inspector and replayed."""
