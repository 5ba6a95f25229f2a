"""Compares URLs that clients or servers supply with an allow-list of the operator.

Rules:

1. Scheme, host and port must be equal after normalisation: lower case, default port, the shortest form of IPv6
   addresses, the ASCII form of international names. Hosts are compared as text: `0x7f.1` does not equal `127.0.0.1` and
   must be listed as such. The request is sent to the normalised URL (`normalised_url`), so it does not matter how other
   parsers would read the original.
2. Path and query must be equal, or begin with the pattern if that ends with `*`.
3. Ambiguous URLs are always refused: with credentials (`user@`), a fragment, backslashes, control characters or blanks,
   with `.` or `..` as a path segment (also with a parameter: `..;`), or with encoded slashes, backslashes, dots or
   percent signs in the path.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import urlsplit

from yarl import URL

_PORTS: Final = {"http": 80, "https": 443}
_UNCLEAR: Final = re.compile(r"[\x00-\x20\x7f-\U0010ffff\\\\<>\"{}|^`]")
_ENCODED: Final = re.compile(r"%(?:2[ef5]|5c|[01][0-9a-f]|7f|c[01]|(?![0-9a-f]{2}))", re.IGNORECASE)
"""Includes `%c0` and `%c1`: in UTF-8 these bytes only begin overlong (invalid) forms, such as that of `.` or `/`."""
_DOTS: Final = re.compile(r"/\.{1,2}(?:/|;|%3b|$)", re.IGNORECASE)
_LONGEST_HOST: Final = 1024
"""Maximum number of characters of a host that is converted to ASCII: the conversion is slow for long texts."""
_NAME: Final = re.compile(r"(?=.{1,253}$)[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?(?:\.[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?)*")

Location = tuple[str, str, int, str]
"""Scheme, host, port, and path with query."""


def location(url: str) -> Location:
    """Returns the normalised parts of a URL. Raises `ValueError` with a reason."""
    if any(char <= " " or char == "\x7f" for char in url) or url != url.strip():
        raise ValueError("it has blanks")  # the library would silently drop some of them
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ValueError("it is not a URL") from error
    if parts.scheme not in _PORTS:
        raise ValueError("it does not begin with `https://` or `http://`")
    if "@" in parts.netloc:
        raise ValueError("it contains a user; send a header instead")
    if "#" in url:
        raise ValueError("it has a fragment")
    host = _host(parts.hostname or "")
    if ":" in host and not re.fullmatch(r"\[[^\[\]]*\](?::[0-9]*)?", parts.netloc):
        raise ValueError("its host is no name")  # the library ignores the letters in `a[::1]b`
    path = parts.path or "/"
    where = f"{path}?{parts.query}" if parts.query else path
    if _UNCLEAR.search(where):
        raise ValueError("its path has characters that have to be encoded")
    if _ENCODED.search(path) or _DOTS.search(path):
        raise ValueError("its path has `.` or `..` segments")
    return parts.scheme, host, _PORTS[parts.scheme] if port is None else port, where


def normalised_url(where: Location) -> str:
    """Returns the normalised URL of a location. Requests go to this one."""
    scheme, host, port, path = where
    server = f"[{host}]" if ":" in host else host
    return f"{scheme}://{server}{path}" if port == _PORTS[scheme] else f"{scheme}://{server}:{port}{path}"


def _host(host: str) -> str:
    """Returns a normalised host. Raises `ValueError` with a reason."""
    if ":" in host:
        try:
            address = ipaddress.IPv6Address(host)
        except ValueError:
            raise ValueError("its host is no address") from None
        if address.scope_id is not None:
            raise ValueError("its host has a zone")
        return str(address)
    if not host.isascii() and len(host) <= _LONGEST_HOST:
        try:
            host = URL.build(scheme="https", host=host).raw_host or ""
        except ValueError:
            raise ValueError("its host is no name") from None
    host = host.lower().removesuffix(".")
    if not _NAME.fullmatch(host):
        raise ValueError("its host is no name")
    return host


class AllowList:
    """The URLs that an operator permits. `*` at the end of a pattern stands for any rest. The constructor raises
    `ValueError` for an invalid pattern."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self._exact: set[Location] = set()
        self._begin: list[Location] = []
        for pattern in patterns:
            bare = pattern.removesuffix("*")
            try:
                parsed = location(bare)
            except ValueError as error:
                raise ValueError(f"{pattern!r}: {error}") from None
            if "*" in bare:
                raise ValueError(f"{pattern!r}: `*` is only allowed at the end")
            if bare is pattern or bare == pattern:
                self._exact.add(parsed)
            elif not re.match(r"[a-z]+://[^/?]+/", bare, re.IGNORECASE):
                raise ValueError(f"{pattern!r}: `*` is only allowed after the host and a `/`")
            else:
                self._begin.append(parsed)

    def refusal(self, url: str) -> str | None:
        """Returns the reason why a URL is not permitted, or None if it is."""
        try:
            parsed = location(url)
        except ValueError as error:
            return str(error)
        *server, where = parsed
        if parsed in self._exact or any(server == first and where.startswith(rest) for *first, rest in self._begin):
            return None
        return "it is not in the list"
