"""Turns the text of a block into a call, or into the reason why it is no call."""
