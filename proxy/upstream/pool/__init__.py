"""Which of a route's backends is asked, and asked again: balance, retries, breakers, health."""
