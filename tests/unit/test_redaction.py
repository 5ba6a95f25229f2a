"""Secrets are covered, by stars of the same length, and nothing else is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.capture.redaction import Redaction

SECRETS = (
    "sk-proj-abcdefghijklmn4opqrstuvwxyz",
    "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
    "AKIAIOSFODNN7EXAMPLE",
    "AIza" + "x" * 35,
    "Bearer abcdefghijklmnop",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N",
    "a-known-word",
)


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("around", ["{}", '{{"k": "{}"}}', "before {} after", "\\n{}\\n"])
def test_what_is_secret_is_covered(secret: str, around: str) -> None:
    text = around.format(secret)
    covered = Redaction(["a-known-word"]).text(text)
    assert secret not in covered
    assert len(covered) == len(text)
    assert covered == around.format("*" * len(secret))


@given(st.binary(max_size=200))
def test_the_length_stays_and_covering_again_changes_nothing(data: bytes) -> None:
    redaction = Redaction(["a-known-word"], [r"\d{4}"])
    covered = redaction.data(data)
    assert len(covered) == len(data)
    assert redaction.data(covered) == covered


def test_plain_words_stay() -> None:
    text = "We ask for a risk-adjusted-return-model, task_list based approach; 4711 bears and a bearer of news."
    assert Redaction().text(text) == text


def test_values_are_covered_in_depth() -> None:
    value = {"a": [SECRETS[0], 1, None, {"b": (SECRETS[2],)}]}
    stars = ["*" * len(SECRETS[0]), 1, None, {"b": ["*" * len(SECRETS[2])]}]
    assert Redaction().value(value) == {"a": stars}


def test_a_short_word_is_no_secret() -> None:
    assert Redaction(["a", ""]).data(b"a banana", b"na") == b"a banana"


def test_a_bad_pattern() -> None:
    with pytest.raises(ValueError, match="RE2"):
        Redaction(patterns=["("])
