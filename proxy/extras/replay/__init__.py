"""`toolwire replay`: runs recorded answers and captures again."""
