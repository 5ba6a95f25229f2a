"""`/openapi.json`: what an application serves, in words that programs read (R27.1)."""
