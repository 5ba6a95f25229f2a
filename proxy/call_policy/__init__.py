"""From the text of a block to a call, or the reason why it is none."""
