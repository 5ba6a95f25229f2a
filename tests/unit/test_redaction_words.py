"""Corners of what is covered: words of the configuration and words of the request, in bytes, texts and values."""

from __future__ import annotations

from itertools import product

from tests.cases import every
from toolwire.observability.redaction import LEAST, Redaction

KNOWN, OWN = "known-word-of-a-server", b"own.word.of.a.request"
SHORT = b"x" * (LEAST - 1)
AROUND = ["{}", "a {} b", '"{}"', "{}{}", "\n{}\n", "ü{}ü"]


@every(("around", "word"), [*product(AROUND, (KNOWN, OWN.decode()))])
def test_every_word_is_covered_in_every_form(around: str, word: str) -> None:
    redaction = Redaction([KNOWN])
    text = around.format(word, word)
    covered = text.replace(word, "*" * len(word))
    assert redaction.data(text.encode(), OWN) == covered.encode()
    assert redaction.text(text, OWN) == covered
    value = {text: [text, {"x": (text, 1, None)}]}
    assert redaction.value(value, OWN) == {covered: [covered, {"x": [covered, 1, None]}]}


def test_a_word_of_one_request_is_none_of_another() -> None:
    redaction = Redaction([KNOWN])
    assert redaction.data(OWN) == OWN
    assert redaction.data(OWN, OWN) == b"*" * len(OWN)
    assert redaction.data(OWN) == OWN


def test_short_words_are_in_every_text() -> None:
    assert Redaction([SHORT.decode()]).data(SHORT, SHORT) == SHORT
