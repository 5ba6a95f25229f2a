"""The answer on its way to the client: the unsent reply, and the stages that its events go through."""
