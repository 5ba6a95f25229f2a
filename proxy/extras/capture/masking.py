"""Secrets in captures are replaced by stars, and only harmless headers are recorded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from aiohttp import web

from ...observability.redaction import Redaction
from ...upstream.servers.leak_detection import leak_detector
from ...upstream.servers.private_data import PrivateData
from .files import Entry, Kind

HEADERS: Final = frozenset(
    (
        *("accept", "content-type", "content-encoding", "transfer-encoding", "user-agent"),
        *("x-request-id", "x-client-request-id", "server", "date"),
    )
)
"""The headers that are recorded, of requests and responses."""


def harmless_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Returns the headers that are recorded, with lower-case names."""
    return {name.lower(): value for name, value in headers.items() if name.lower() in HEADERS}


def presented_key(request: web.Request) -> bytes:
    """Returns the key that the client sent; empty if it sent none."""
    key = request.headers.get("x-api-key") or request.headers.get("Authorization", "").rpartition(" ")[2]
    return key.encode(errors="backslashreplace")


def mask_secrets(
    entries: Sequence[Entry], redaction: Redaction, keys: Sequence[bytes], private: PrivateData
) -> Iterator[Entry]:
    """Yields the entries with secrets replaced, among them `keys`. Finds secrets that are split between reads. If a
    model server sends one of the secrets in `private`, piece by piece, everything after its start is replaced, as it
    was withheld from the client."""
    streams: dict[tuple[Kind, int], list[int]] = {}
    for index, entry in enumerate(entries):
        streams.setdefault((entry.kind, entry.call), []).append(index)
    covered: dict[int, bytes] = {}
    for (kind, _), indices in streams.items():
        whole = redaction.data(b"".join(entries[index].data for index in indices), *keys)
        if kind == "received" and (leaks := leak_detector(private)) is not None:
            whole = leaks.frames(whole).ljust(len(whole), b"*")
        at = 0
        for index in indices:
            size = len(entries[index].data)
            covered[index] = whole[at : at + size]
            at += size
    for index, entry in enumerate(entries):
        yield Entry(entry.kind, entry.at, entry.call, covered[index], redaction.value(dict(entry.fields), *keys))
