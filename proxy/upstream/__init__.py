"""Model servers: the HTTP client, what the gateway knows of each kind of server, and the pool behind a route."""
