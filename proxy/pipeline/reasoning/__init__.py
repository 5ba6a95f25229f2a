"""Where reasoning begins and ends in an answer, and calls inside of it."""
