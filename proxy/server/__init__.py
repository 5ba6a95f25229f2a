"""Runs the gateway process: sockets, signals, workers, limits on client connections, and the application."""
