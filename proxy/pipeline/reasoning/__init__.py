"""Detection of reasoning in an answer, and of calls inside it."""
