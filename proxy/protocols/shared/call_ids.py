"""Shortening of call ids, for servers that limit their length. Pure functions without state."""

from __future__ import annotations

from hashlib import blake2b


def at_most(chars: int, call_id: str) -> str:
    """Returns the call id itself, or a digest of it if it is longer than `chars` (which is at least 37). A call and its
    result get the same id, different calls different ids (R24.2a)."""
    if len(call_id) <= chars:
        return call_id
    return f"call_{blake2b(call_id.encode('utf-8', 'surrogatepass'), digest_size=16).hexdigest()}"
