"""Captures: recorded exchanges, which can be downloaded, shown in the inspector and run again."""
