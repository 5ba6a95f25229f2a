"""Text behind escapes, and the places in the text as it was given."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from toolwire.support.escapes import DEPTH, replace_words, views

PIECES = st.sampled_from(
    [
        *(b"\\", b"u00", b"5c", b"41", b"%", b"25", b"/", b"a"),
        *(b"\\u005c", b"%5c", b"%2541", b"\\u0041", b"\\/", b"\xc3\xa4"),
    ]
)
DIGITS = b"0123456789abcdefABCDEF"


def undone(spelled: list[tuple[bytes, int, int]]) -> list[tuple[bytes, int, int]]:
    """One level of escapes less: bytes, each with its begin and end in the text that was given. Read byte by byte."""
    text = b"".join(byte for byte, _, _ in spelled)
    out: list[tuple[bytes, int, int]] = []
    at = 0
    while at < len(text):
        run = at
        while text[run : run + 1] == b"\\":
            run += 1
        end, byte = at, b""
        digits = text[run + 3 : run + 5] if run > at else text[at + 1 : at + 3]
        is_code = len(digits) == 2 and digits[0] in b"234567" and digits[1] in DIGITS
        if run > at and text[run : run + 3] == b"u00" and is_code:
            end, byte = run + 5, bytes.fromhex(digits.decode())
        elif run > at and text[run : run + 1] == b"/":
            end, byte = run + 1, b"/"
        elif text[at : at + 1] == b"%" and is_code:
            end, byte = at + 3, bytes.fromhex(digits.decode())
        if byte:
            out.append((byte, spelled[at][1], spelled[end - 1][2]))
        else:
            end = max(run, at + 1)
            out += spelled[at:end]
        at = end
    return out


@given(st.lists(PIECES, max_size=14).map(b"".join), st.data())
def test_law_each_byte_is_known_by_its_place(given_: bytes, data: st.DataObject) -> None:
    spelled = [(given_[at : at + 1], at, at + 1) for at in range(len(given_))]
    levels = [spelled]
    for _ in range(DEPTH):
        spelled = undone(spelled)
        if spelled == levels[-1]:
            break
        levels.append(spelled)
    seen = list(views(given_))
    assert [view.text for view in seen] == [b"".join(byte for byte, _, _ in level) for level in levels]
    for view, level in zip(seen, levels, strict=True):
        if level:
            begin = data.draw(st.integers(0, len(level) - 1))
            end = data.draw(st.integers(begin + 1, len(level)))
            assert view.origin(begin, end) == (level[begin][1], level[end - 1][2])


def test_words_are_taken_out_however_they_are_spelled() -> None:
    for spelled in ("token-1", r"t\u006fken-1", r"token\\u002d1", "tok%65n-1", r"\u0074\u006f\u006b\u0065\u006e-1"):
        assert replace_words(f"ä {spelled}, {spelled}!", [b"token-1", b"oken"], "[hidden]") == "ä [hidden], [hidden]!"
    assert replace_words(r"\u0041 %41 \/", [b"token-1"], "[hidden]") == r"\u0041 %41 \/"
