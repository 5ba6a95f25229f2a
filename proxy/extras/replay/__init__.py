"""`toolwire replay`: recorded answers and captures, run again."""
