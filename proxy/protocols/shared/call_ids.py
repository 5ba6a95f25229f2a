"""Ids of calls, for servers that bound their length. Pure functions: nothing is remembered."""

from __future__ import annotations

from hashlib import blake2b


def at_most(chars: int, call_id: str) -> str:
    """The id under which a server is told of a call: as it is, or by its digest if it has more than so many `chars`, 37
    or more. The same for a call and its result, and never for two calls (R24.2a)."""
    if len(call_id) <= chars:
        return call_id
    return f"call_{blake2b(call_id.encode('utf-8', 'surrogatepass'), digest_size=16).hexdigest()}"
