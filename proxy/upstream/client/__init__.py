"""The HTTP client for model servers (docs/adr/0007), and the WebSocket client."""
