"""The path of one request: the exchange, the chain of middlewares, the unsent reply, and its sending to the client."""
