"""The process: sockets, signals, workers, what clients may do to a connection, and the application behind it."""
