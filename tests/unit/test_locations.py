"""Which URLs a list permits, and what is not permitted whatever it says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import every
from toolwire.support.locations import AllowList, location, written

EXACT = AllowList(["https://Tools.Example/mcp", "http://127.0.0.1:8000/", "http://[::1]:9/x", "https://bücher.example"])
BEGINS = AllowList(["https://tools.example/a/*", "https://tools.example/b*", "https://any.example/*"])


@every(
    "url",
    [
        "https://tools.example/mcp",
        "HTTPS://TOOLS.example:443/mcp",
        "https://tools.example./mcp",
        "http://127.0.0.1:8000",
        "http://[0:0:0:0:0:0:0:1]:9/x",
        "https://xn--bcher-kva.example/",
    ],
)
def test_the_same_in_another_form(url: str) -> None:
    assert EXACT.refusal(url) is None


@every(
    "url",
    [
        "http://tools.example/mcp",
        "https://tools.example/mcp/",
        "https://tools.example/mcp?key=1",
        "https://tools.example/MCP",
        "https://tools.example/",
        "https://tools.example:8443/mcp",
        "https://tools.example.evil/mcp",
        "https://evil-tools.example/mcp",
        "http://localhost:8000/",
        "http://2130706433:8000/",
        "http://0x7f.1:8000/",
        "http://127.1:8000/",
        "http://[::ffff:127.0.0.1]:8000/",
        "http://[::1%25eth0]:9/x",
        "http://0.0.0.0:8000/",
    ],
)
def test_another_server_or_another_place(url: str) -> None:
    assert EXACT.refusal(url) is not None


@every(
    "url",
    ["https://tools.example/a/", "https://tools.example/a/b/c?d=e", "https://tools.example/bcd", "https://any.example"],
)
def test_a_pattern_with_any_rest(url: str) -> None:
    assert BEGINS.refusal(url) is None


UNCLEAR = [
    "https://user@any.example/mcp",
    "https://user:pass@any.example/mcp",
    "https://tools.example@evil.example/a/",
    "https://any.example/a#b",
    "https://any.example/#",
    "https://any.example\\@evil.example/",
    "https://any.example/\\evil",
    "https://any.example/a/../b",
    "https://tools.example/a/../c",
    "https://tools.example/a/./c",
    "https://tools.example/a/%2e%2e/c",
    "https://tools.example/a/%2E%2e/c",
    "https://tools.example/a/..%2fc",
    "https://tools.example/a/..%5cc",
    "https://tools.example/a/%252e%252e/c",
    "https://tools.example/a/%00",
    "https://tools.example/a/%zz",
    "https://tools.example/a/%",
    "https://tools.example/a/ b",
    " https://any.example/",
    "https://any.example/\n",
    "ht\ntps://any.example/",
    "https://any.exa\tmple/",
    "https://any.example/é",
    "https://any%2eexample/",
    "https://any.example:99999/",
    "https://any.example:x/",
    "https:any.example/",
    "https:///any.example/",
    "//any.example/",
    "any.example",
    "file:///etc/passwd",
    "ftp://any.example/",
    "https://",
    "https://[::1/",
    "https://[zz]/",
    "https://any..example/",
    "https://any.example[::1]/",
    "https://[::1]any.example/",
    "https://[::1][::1]/",
    "https://any\u200c.example/",
    "https://" + "\u00e4" * 100_000 + ".example/",
    "\x00https://any.example/",
    "https://any.example/\x7f",
    "https://tools.example/a/..;/c",
    "https://tools.example/a/..;x=y/c",
    "https://tools.example/a/..%3b/c",
    "https://tools.example/a/.;",
    "https://tools.example/a/%c0%ae%c0%ae/c",
    "https://-any.example/",
    "",
]


@every("url", UNCLEAR)
def test_what_could_be_read_in_two_ways(url: str) -> None:
    assert BEGINS.refusal(url) is not None
    assert AllowList(["https://any.example/*", "https://evil.example/*"]).refusal(url) is not None


@every(
    ("pattern", "url"),
    [("https://fass.example/*", "https://fa\u00df.example/"), ("https://\u03c3.example/", "https://\u03c2.example/")],
)
def test_letters_that_only_older_readers_take_for_others(pattern: str, url: str) -> None:
    """IDNA 2003 reads them as the others, IDNA 2008 as a name of its own: who asks the server uses that."""
    assert AllowList([pattern]).refusal(url) is not None


@every(
    ("url", "asked"),
    [
        ("HTTPS://Tools.Example.:443", "https://tools.example/"),
        ("http://tools.example:443/a?b=%20", "http://tools.example:443/a?b=%20"),
        ("http://[0:0:0:0:0:0:0:1]:9/x", "http://[::1]:9/x"),
        ("https://B\u00fccher.example/", "https://xn--bcher-kva.example/"),
        ("https://tools\u3002example/mcp", "https://tools.example/mcp"),
    ],
)
def test_what_was_compared_is_asked(url: str, asked: str) -> None:
    assert written(location(url)) == asked
    assert location(asked) == location(url)


@every(
    "pattern",
    ["*", "https://*", "https://*.example/", "https://any.example*", "https://a.example/*/b", "file:///*", "", "x"],
)
def test_a_pattern_that_is_none(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        AllowList([pattern])


@given(st.text(max_size=60), st.sampled_from(["", "https://any.example", "https://tools.example/a/", "https://"]))
def test_nothing_else_is_permitted(rest: str, head: str) -> None:
    """Whatever is permitted leads to one of the servers, as others read URLs too."""
    url = head + rest
    if BEGINS.refusal(url) is None:
        scheme, host, port, path = location(url)
        assert (scheme, port) == ("https", 443)
        assert host in ("any.example", "tools.example")
        assert host == "any.example" or path.startswith(("/a/", "/b"))
        assert ".." not in path.split("?")[0].split("/")
