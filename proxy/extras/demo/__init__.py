"""`toolwire demo`: a small real model behind the gateway, and tool calls shown from both sides."""
