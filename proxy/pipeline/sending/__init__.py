"""The outermost layer of a request, and the way of its answer to the client."""
