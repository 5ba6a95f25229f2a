"""Which URLs a list permits, and what is not permitted whatever it says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import every
from toolwire.support.locations import AllowList, location, normalised_url

EXACT = AllowList(["https://Tools.Example/mcp", "http://127.0.0.1:8000/", "http://[::1]:9/x", "https://bücher.example"])
BEGINS = AllowList(["https://tools.example/a/*", "https://tools.example/b*", "HTTPS://Any.example/*"])


@every(
    ("listed", "url"),
    [
        # the same in another form
        (EXACT, "https://tools.example/mcp"),
        (EXACT, "HTTPS://TOOLS.example:443/mcp"),
        (EXACT, "https://tools.example./mcp"),
        (EXACT, "http://127.0.0.1:8000"),
        (EXACT, "http://[0:0:0:0:0:0:0:1]:9/x"),
        (EXACT, "https://xn--bcher-kva.example/"),
        # a pattern with any rest
        *((BEGINS, f"https://tools.example/{rest}") for rest in ("a/", "a/b/c?d=e", "bcd")),
        (BEGINS, "https://any.example"),
    ],
)
def test_what_is_permitted(listed: AllowList, url: str) -> None:
    assert listed.refusal(url) is None


@every(
    "url",
    [
        *(f"https://tools.example{rest}" for rest in ("/mcp/", "/mcp?key=1", "/MCP", "/", ":8443/mcp", ".evil/mcp")),
        *(f"http://{host}:8000/" for host in ("localhost", "2130706433", "0x7f.1", "127.1", "0.0.0.0")),
        "http://[::ffff:127.0.0.1]:8000/",
        "http://[::1%25eth0]:9/x",
        "http://tools.example/mcp",
        "https://evil-tools.example/mcp",
    ],
)
def test_another_server_or_another_place(url: str) -> None:
    assert EXACT.refusal(url) is not None


UP = ("../c", "./c", "%2e%2e/c", "%2E%2e/c", "..%2fc", "..%5cc", "%252e%252e/c", "..;/c", "..;x=y/c", "..%3b/c", ".;")
HOSTS = ("any%2eexample", "any..example", "[zz]", "[::1]any.example", "[::1][::1]", "any\u200c.example", "-any.example")
UNCLEAR = [
    *(f"https://tools.example/a/{rest}" for rest in (*UP, "%c0%ae%c0%ae/c", "%00", "%zz", "%", " b")),
    *(f"https://any.example{rest}" for rest in ("/a#b", "/#", "/\\evil", "/a/../b", "/\n", "/é", "/\x7f")),
    *(f"https://any.example{rest}" for rest in (":99999/", ":x/", "[::1]/", "\\@evil.example/")),
    *(f"https://{host}/" for host in (*HOSTS, "\u00e4" * 100_000 + ".example")),
    *("https://user@any.example/mcp", "https://user:pass@any.example/mcp", "https://tools.example@evil.example/a/"),
    *(" https://any.example/", "\x00https://any.example/", "ht\ntps://any.example/", "https://any.exa\tmple/"),
    *("https:any.example/", "https:///any.example/", "//any.example/", "any.example", "https://", "https://[::1/", ""),
    *("file:///etc/passwd", "ftp://any.example/"),
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
    assert normalised_url(location(url)) == asked
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
