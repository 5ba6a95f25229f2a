"""One request: its exchange, its route, and what belongs to it until it has been answered."""
