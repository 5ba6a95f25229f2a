"""Known conversations: results of earlier requests that the next request uses again."""
