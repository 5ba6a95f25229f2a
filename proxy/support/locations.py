"""URLs that somebody else gives, held against a list of those that an operator permits.

Rules:

1. Scheme, host and port are equal, after both were brought into one form: small letters, the usual port, an address of
   version 6 in its shortest form, a name with other letters in its ASCII form. A host is compared as it is written:
   `0x7f.1` is no `127.0.0.1`, so it has to be permitted as such. In that form it is asked, too (`written`): what others
   would read in a URL does not matter then.
2. The path and the query are equal, unless the pattern ends with `*`: then they begin as it does.
3. What could be read in two ways is not permitted, whatever the list says: who is to log in (`user@`), a fragment,
   backslashes, control characters and blanks, `.` and `..` as a part of the path, also with a parameter (`..;`), and
   slashes, backslashes, dots and percent signs that are encoded there.
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
"""`%c0` and `%c1` begin a `.` or `/` that is longer than it may be, and nothing else."""
_DOTS: Final = re.compile(r"/\.{1,2}(?:/|;|%3b|$)", re.IGNORECASE)
_LONGEST_HOST: Final = 1024
"""Characters, before it is in its ASCII form: that takes long for long ones."""
_NAME: Final = re.compile(r"(?=.{1,253}$)[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?(?:\.[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?)*")

Location = tuple[str, str, int, str]
"""Scheme, host, port; path with query."""


def location(url: str) -> Location:
    """A URL in one form. Raises `ValueError` with what is wrong."""
    if any(char <= " " or char == "\x7f" for char in url) or url != url.strip():
        raise ValueError("it has blanks")  # some of which the library would leave out
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ValueError("it is no URL") from error
    if parts.scheme not in _PORTS:
        raise ValueError("it does not begin with `https://` or `http://`")
    if "@" in parts.netloc:
        raise ValueError("it says who is to log in; send a header instead")
    if "#" in url:
        raise ValueError("it has a fragment")
    host = _host(parts.hostname or "")
    if ":" in host and not re.fullmatch(r"\[[^\[\]]*\](?::[0-9]*)?", parts.netloc):
        raise ValueError("its host is no name")  # the library sees the address alone in `a[::1]b`
    path = parts.path or "/"
    where = f"{path}?{parts.query}" if parts.query else path
    if _UNCLEAR.search(where):
        raise ValueError("its path has characters that have to be encoded")
    if _ENCODED.search(path) or _DOTS.search(path):
        raise ValueError("its path has parts that mean other parts")
    return parts.scheme, host, _PORTS[parts.scheme] if port is None else port, where


def written(where: Location) -> str:
    """The URL of a location: the one that may be asked if that is permitted."""
    scheme, host, port, path = where
    server = f"[{host}]" if ":" in host else host
    return f"{scheme}://{server}{path}" if port == _PORTS[scheme] else f"{scheme}://{server}:{port}{path}"


def _host(host: str) -> str:
    """A host in one form. Raises `ValueError`."""
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


class Permitted:
    """Those that a list permits. `*` at the end of a pattern stands for any rest. Raises `ValueError` for a bad
    pattern."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self._exact: set[Location] = set()
        self._begin: list[Location] = []
        for pattern in patterns:
            bare = pattern.removesuffix("*")
            try:
                found = location(bare)
            except ValueError as error:
                raise ValueError(f"{pattern!r}: {error}") from None
            if "*" in bare:
                raise ValueError(f"{pattern!r}: `*` may stand at the end only")
            if bare is pattern or bare == pattern:
                self._exact.add(found)
            elif not re.match(r"[a-z]+://[^/?]+/", bare, re.IGNORECASE):
                raise ValueError(f"{pattern!r}: `*` may stand behind the host and a `/` only")
            else:
                self._begin.append(found)

    def refusal(self, url: str) -> str | None:
        """Why a URL is not permitted; None: it is."""
        try:
            found = location(url)
        except ValueError as error:
            return str(error)
        *server, where = found
        if found in self._exact or any(server == first and where.startswith(rest) for *first, rest in self._begin):
            return None
        return "it is not in the list"
