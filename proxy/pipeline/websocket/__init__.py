"""Responses over WebSocket."""
