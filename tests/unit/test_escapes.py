"""Text behind escapes, and the places in the text as it was given."""

from __future__ import annotations

from toolwire.support.escapes import replace_words


def test_words_are_taken_out_however_they_are_spelled() -> None:
    for spelled in ("token-1", r"t\u006fken-1", r"token\\u002d1", "tok%65n-1", r"\u0074\u006f\u006b\u0065\u006e-1"):
        assert replace_words(f"ä {spelled}, {spelled}!", [b"token-1", b"oken"], "[hidden]") == "ä [hidden], [hidden]!"
    assert replace_words(r"\u0041 %41 \/", [b"token-1"], "[hidden]") == r"\u0041 %41 \/"
