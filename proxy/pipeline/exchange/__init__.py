"""One request: its exchange, its route, and everything that belongs to it until it is answered."""
