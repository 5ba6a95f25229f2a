"""Known conversations: results for earlier messages are reused in the next request."""
