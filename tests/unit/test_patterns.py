"""Patterns that are looked for in a stream."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import every
from tests.strategies import cuts
from toolwire.extras.middlewares.redact import KINDS, RedactOptions
from toolwire.support.patterns import LONGEST, Patterns, StreamReplacer, replaced

BY = "#"
SMALL = ["ab{1,2}@", r"\bcc?\b", "a(?:b|c){2}a", "b?b?b@", "(?i)xY{2,3}", "[^a-x@ ]@"]
ALPHABET = "abc@ xYy"
texts = st.text(st.sampled_from(ALPHABET + "é日"), max_size=24)


def fed(patterns: Patterns, pieces: list[str]) -> str:
    replacing = StreamReplacer(patterns, BY)
    return "".join([*map(replacing.feed, pieces), replacing.finish()])


@given(st.data())
def test_the_pieces_do_not_matter(data):
    patterns = Patterns(data.draw(st.lists(st.sampled_from(SMALL), min_size=1, unique=True)))
    text = data.draw(texts)
    assert fed(patterns, data.draw(cuts(text))) == replaced(patterns, text, BY)[0]


@given(st.sampled_from(SMALL), texts)
def test_what_is_found_is_what_a_regular_expression_finds(pattern, text):
    # Python takes the first alternative that fits and not the longest; these patterns have the same.
    assert replaced(Patterns([pattern]), text, BY) == re.subn(pattern, BY, text, flags=re.ASCII)


def test_an_address_is_held_until_it_cannot_go_on():
    replacing = StreamReplacer(Patterns(KINDS["email"]), "[m]")
    assert replacing.feed("Write to ada") == "Write to "
    assert replacing.feed("@example") == ""
    assert replacing.feed(".org") == ""
    assert replacing.feed(", please") == "[m], "
    assert replacing.finish() == "please"
    assert replacing.found == 1


def test_a_long_run_is_held_for_no_longer_than_a_match_can_be():
    replacing = StreamReplacer(Patterns([r"key=\w{1,500}!"]), BY)
    out = replacing.feed("key=" + "x" * 2_000)
    assert len(out) >= 2_004 - 505


FOUND = {
    "card": ("4111 1111 1111 1111", "5500-0000-0000-0004", "378282246310005"),
    "email": ("ada@example.org", "a.b+c@mail.example.co.uk"),
    "iban": ("DE89 3704 0044 0532 0130 00", "GB82WEST12345698765432"),
    "ipv4": ("10.255.0.1", "192.168.1.254"),
    "private_key": ("-----BEGIN RSA PRIVATE KEY-----\nMIIE+/=\n-----END RSA PRIVATE KEY-----",),
    "ssn": ("078-05-1120",),
    "token": (
        "sk-proj-abcdefghijklmnop1234",
        "sk_live_abcdefghijklmnop1234",
        "ghp_abcdefghijklmnopqrst0123456789abcdef",
        "AKIAIOSFODNN7EXAMPLE",
        "xoxb-123456789012-abcdef",
        "AIzaSyA-1234567890abcdefghijklmnopqrstu",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N",
        "Bearer abcdef0123456789abcdef",
    ),
}


@every(("kind", "text"), [(kind, text) for kind, some in FOUND.items() for text in some])
def test_what_is_built_in_finds_what_it_is_for(kind, text):
    patterns = RedactOptions(kinds=(kind,)).compiled()
    assert replaced(patterns, f"It is {text}, you see.", BY) == (f"It is {BY}, you see.", 1)


def test_every_kind_is_shown():
    assert set(FOUND) == set(KINDS)


ORDINARY = (
    "at 10:30 on 2026-11-22",
    "version 1.2.3",
    "order 123456",
    "user@host",
    "risk-adjusted-return",
    "a-b_c sk-1",
)


@every("text", [*ORDINARY, "300.1.1.1"])
def test_and_leaves_other_things_alone(text):
    assert replaced(RedactOptions(kinds=tuple(KINDS)).compiled(), text, BY) == (text, 0)


@every(
    ("pattern", "why"),
    [
        *((pattern, "greatest length") for pattern in ("a+", "a*b", "a{2,}")),
        *((pattern, "empty text") for pattern in ("a?", r"\b")),
        *((pattern, "cannot be used") for pattern in ("^a", "a$", r"(a)\1", "[z-a]", "[a")),
        ("(?=a)b", "only (?: can be used"),
        ("(a", "not closed"),
        ("a)", "too many"),
        ("a{3,2}", "number of times"),
        ("a{2}{3}", "two repetitions"),
        ("(?:" + "a{1000}" * 9 + ")", f"more than {LONGEST}"),
    ],
)
def test_a_pattern_that_cannot_be_used_says_why(pattern, why):
    with pytest.raises(ValueError, match=re.escape(why)):
        Patterns([pattern])


def test_hostile_text_takes_linear_time():
    # Each of these makes a backtracking engine, or one that starts again for each piece, take minutes.
    patterns = RedactOptions(kinds=tuple(KINDS), patterns=("(?:a{1,50}){1,10}b",)).compiled()
    for text in "a" * 200_000, "a@" * 100_000, "1 " * 100_000, "-----BEGIN " * 20_000, "eyJ" * 60_000:
        replaced(patterns, text, BY)
        replacing = StreamReplacer(patterns, BY)
        for start in range(0, len(text), 1_000):
            replacing.feed(text[start : start + 1_000])
        replacing.finish()
