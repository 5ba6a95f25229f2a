"""Receives requests: authentication, limits on size, memory and time, decompression, and client liveness."""
