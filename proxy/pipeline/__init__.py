"""One request on its way: the exchange, the chain of middlewares, the reply that is not sent yet, and its way to the
client."""
