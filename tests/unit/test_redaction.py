"""Secrets are covered, by stars of the same length, and nothing else is."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import every, first_and_in_turn
from toolwire.config import GatewayConfig, McpServerConfig, ToolsConfig
from toolwire.observability.redaction import LEAST, Redaction, known_secrets
from toolwire.support.escapes import PIECE_BYTES

SECRETS = (
    "sk-proj-abcdefghijklmn4opqrstuvwxyz",
    "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
    "AKIAIOSFODNN7EXAMPLE",
    "AIza" + "x" * 35,
    "Bearer abcdefghijklmnop",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N",
    "a-known-word",
)


@every("secret", SECRETS)
@every("around", ["{}", '{{"k": "{}"}}', "before {} after", "\\n{}\\n"])
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
    for text in (
        "We ask for a risk-adjusted-return-model, task_list based approach; 4711 bears and a bearer of news.",
        "Basic authentication and basic configuration, basic understanding; 50%25 of it \\/ \\u0041.",
    ):
        assert Redaction(["a-known-word"]).text(text) == text


KNOWN, OWN = "known-word-of-a-server", b"own.word.of.a.request"


@every("around", ["{}", "a {} b", '"{}"', "{}{}", "\n{}\n", "ü{}ü"])
@every("word", [KNOWN, OWN.decode()])
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


def test_a_short_word_is_no_secret() -> None:
    short = b"x" * (LEAST - 1)
    assert Redaction([short.decode(), ""]).data(short, short) == short


def test_a_bad_pattern() -> None:
    with pytest.raises(ValueError, match="RE2"):
        Redaction(patterns=["("])


SPELLED = (
    *(r"s\u006b-proj-abcdefgh1jklmnop", r"sk-proj-\u0061bcdefgh1jklmnop", r"\\u0073k-proj-abcdefgh1jklmnop"),
    *(r"a-known-w\u006Frd", "%61-known-word", "a%2Dknown%2dword", r"a-known\\u002dword", r"\u005cu0061-known-word"),
    *(r"geheim\u0031\u0032", "Bearer abcdefghijk%6Cmnop", "Basic dXNlcjpwYXNzd29yZA==", r"basic dXNlcjpwYXNzd29y\u005aA=="),
    r"eyJhbGciOiJIUzI1NiJ9\u002eeyJzdWIiOiIxMjM0NTY3ODkwIn0\u002edozjgNryP4J3jVmNHl0w5N",
)  # fmt: skip


@every("secret", SPELLED)
@every("around", ["{}", '{{"k": "{}"}}', "before {} after", r"\u0041\/ {} %41"])
def test_what_is_spelled_with_escapes_is_covered(secret: str, around: str) -> None:
    redaction = Redaction(["a-known-word"], [r"geheim\d+"])
    assert redaction.text(around.format(secret)) == around.format("*" * len(secret))


EDGES = [PIECE_BYTES - 1, PIECE_BYTES - 20, PIECE_BYTES, 2 * PIECE_BYTES - 7]
LONG = ["sk-" + "a1" * 20_000, "Bearer " + "a" * 70_000]


@every(("secret", "before"), [*product(LONG, EDGES), *first_and_in_turn([*SECRETS, *SPELLED], EDGES)])
def test_secrets_at_the_edges_of_pieces(secret: str, before: int) -> None:
    redaction = Redaction(["a-known-word"], [r"geheim\d+"])
    covered = redaction.data(b"." * before + b" " + secret.encode() + b" ," + b" " * 50_000)
    assert covered == b"." * before + b" " + b"*" * len(secret) + b" ," + b" " * 50_000


@given(
    st.binary(max_size=60), st.sampled_from([b"eyJ", b"sk-", b"Bearer ", b"%41", b"\\", b"\\u0041"]), st.integers(0, 40)
)
def test_many_beginnings_hide_no_secret(before: bytes, unit: bytes, times: int) -> None:
    covered = Redaction(["a-known-word"]).data(before + unit * times + b" a-known-word, " + unit * times)
    assert b"a-known-word" not in covered


def test_tokens_of_tool_servers_are_known() -> None:
    server = McpServerConfig(name="files", url="http://127.0.0.1:1/mcp", headers={"X-Token": "word-of-server"})
    assert "word-of-server" in set(known_secrets(GatewayConfig(tools=ToolsConfig(mcp=(server,)))))
