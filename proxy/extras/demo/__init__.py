"""`toolwire demo`."""
