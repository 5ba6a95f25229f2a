"""Chooses which server of a route gets a request, and retries: balancing, circuit breakers, health checks."""
