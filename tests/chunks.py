"""Streams of Chat chunks, as servers write them and as they should not, for whoever reads them."""

from __future__ import annotations

import itertools
import json
from typing import Any

import orjson
from hypothesis import strategies as st

from toolwire.testing import chunk

WORDS = st.sampled_from(
    [
        *("Hello", " world", " it", "s", ".", " ", "\n", "\n\n", " a\n", "ü", " 日本", "🚀", "x" * 40),
        *("\u2028", "\x7f", "\x00", "<", "<tool", "_call>", "</tool_call>", "<think>", "</think>"),
        *("{", "}", '"', "\\", " a < b", '{"name":"f","arguments":"{}"}', "```json\n", "�", "`"),
    ]
)
CALLS = [
    '<tool_call>{"name":"f","arguments":"{\\"a\\":1}"}</tool_call>',
    '<tool_call>\n{"name":"f","arguments":{"a":"<é 🚀\\n"}}\n</tool_call>',
    '{"name":"f","parameters":{"a":1}}',
    "<tool_call>\n<function=f>\n<parameter=a>\n1 < 2\n</parameter>\n</function>\n</tool_call>",
    '<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a":1}<|call|>',
    '[f(a="x", b=[1])]',
    '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{"a":1}<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
]
"""A call as models write it in several formats."""
RAW = st.sampled_from(
    [
        *(r"\u003c", r"\ud83d\ude00 x", r"\uD83D\uDE00", r"\ude00\ud83d", r"\u12"),
        *(r"\u00e9\u001F\u4e2d", r"\u003ctool_call\u003e", r"\ud83d", r"\ude00", r"\n", r"\""),
        *(r"\/", r"a\u0000", "", "plain", " plain", "\x01", "\t", "\\"),
    ]
)
"""Between the quotes of a content, not always valid."""
ODD_BYTES = st.sampled_from(
    [b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc0\x80", b"\xe2\x82\xac", b"\xf0\x9f\x9a\x80"]
)


CONTENTS = st.one_of(WORDS, WORDS, WORDS, st.text(st.characters(codec="utf-8"), max_size=6))
KEYS = st.sampled_from(["content"] * 5 + ["reasoning_content"] * 2 + ["reasoning"])


@st.composite
def contents(draw: st.DrawFn) -> bytes:
    """A chunk that holds text, as one server writes it again and again, but for the text."""
    style = draw(st.integers(0, 5))
    text = draw(CONTENTS)
    key = draw(KEYS)
    made = chunk({key: text})
    if style == 0:
        return orjson.dumps(made)
    if style == 1:
        return json.dumps(made, ensure_ascii=draw(st.booleans())).encode()
    if style == 2:
        made["choices"][0]["delta"]["role"] = draw(st.sampled_from(["assistant", None]))
        return orjson.dumps({**made, "usage": None, "system_fingerprint": None, "n": [1.5e-3, {"a": [True, -0]}]})
    before, _, after = orjson.dumps(chunk({key: "@"})).partition(b"@")
    if style == 3:
        return before + draw(RAW).encode() + after
    if style == 4:
        return before + b"ab" + draw(ODD_BYTES) + b"c" + after
    return before + orjson.dumps(text)[1:-1] + after


FIELDS: list[dict[str, Any]] = [
    {"error": {"message": "no memory at http://10.0.0.1:8000"}},
    {"error": None},
    {"object": "error", "message": "bad"},
    {"usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}},
    {"choices": []},
    {"choices": None},
    {"obfuscation": "xyz"},
    {"id": 5, "model": None},
    {"created": 1e308, "seq": [-1, 2**62]},
    {"created": -1, "usage": {"prompt_tokens": 1e300, "completion_tokens": -5}},
    {"deep": [[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]},
]
DELTAS: list[dict[str, Any]] = [
    {"role": "assistant"},
    {"role": "assistant", "content": ""},
    {"content": None},
    {"content": ["a"]},
    {"content": [{"type": "text", "text": "part"}]},
    {"reasoning_content": "thinking"},
    {"reasoning_content": " hard", "content": None},
    {"reasoning": "so ü", "content": ""},
    {"reasoning": "so", "reasoning_content": "thinking"},
    {"reasoning": "so", "reasoning_content": "", "reasoning_text": None},
    {"reasoning_text": "\x1b"},
    {"reasoning_details": [{"type": "reasoning.text", "text": "so ü"}]},
    {"content": "", "reasoning_content": ""},
    {"content": "both", "reasoning_content": "thinking"},
    {"content": "no", "refusal": "I will not."},
    {"content": "ok", "refusal": None, "tool_calls": None, "function_call": None},
    {"content": "ok", "tool_calls": []},
    {"tool_calls": [{"index": 0, "id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a"'}}]},
    {"tool_calls": [{"index": 0, "function": {"arguments": ":1}"}}]},
    {"content": "odd", "strange": 1},
]
CHOICES: list[dict[str, Any]] = [
    {"index": 0, "delta": {"content": "lp"}, "logprobs": {"content": [{"token": "lp", "logprob": -0.5}]}},
    {"index": 0, "delta": {"content": "end"}, "finish_reason": "length"},
    {"index": 1, "delta": {"content": "other"}, "finish_reason": None},
    {"index": None, "delta": {"content": "null"}},
    {"index": "0", "delta": {"content": "string"}},
    {"delta": {"content": "none"}},
    {"index": 0, "text": "older"},
    {"index": 0, "delta": {"content": "x"}, "text": "y", "stop_reason": None, "more": {"delta": {"content": "z"}}},
    {"index": 0, "delta": None},
    {"index": 10**12, "delta": {"content": "far"}},
    {"index": -1, "delta": {"content": "before"}},
    {"index": 1e300, "delta": {"content": "large"}},
    {"index": True, "delta": {"content": "true"}},
    {
        "index": 0,
        "delta": {"tool_calls": [{"index": 10**12, "id": "c9", "function": {"name": "f", "arguments": "{}"}}]},
    },
]
WHOLE: list[bytes] = [
    b"[DONE]",
    b"no json",
    b'{"choices":[',
    b"[1]",
    b'{"choices":[{"index":0,"delta":{"content":"a","content":"b"}}]}',
    b'{"choices":[{"index":0,"delta":{"content":"a"},"delta":{"content":"b"}}]}',
    b'{"choices":[{"index":0,"delta":{"content":"a"}}],"choices":[]}',
    b'{"choices":[{"index":0,"delta":{"c\\u006fntent":"a"}}]}',
    b'{"choices":[{"index":0,"delta":{"content":"a"}}],"n":01}',
    b'{"choices":[{"index":0,"delta":{"content":"a"}}],"n":NaN}',
    b'{"choices":[{"index":0,"delta":{"content":"a"}}]}}',
    b'{"choices":[{"index":0,"delta":{"content":"a"}},{"index":0,"delta":{"content":"b"}}]}',
    b'{"choices":[{"index":00,"delta":{"content":"a"}}]}',
    b'{"choices":[{"index":0.0,"delta":{"content":"a"}}]}',
    b'{"choices":[{"index":-0,"delta":{"content":"a"}}]}',
    b'{"choices":[{"index":0,"delta":{"content":"a"}}],"created":1%b}' % (b"0" * 400),
    b'{"choices":[{"index":1%b,"delta":{"content":"a"}}]}' % (b"0" * 30),
    b' { "choices" : [ { "index" : 0 , "delta" : { "content" : "spaced" } } ] } ',
    b'{"choices":\n[{"index":0,"delta":{"content":"a"}}]}',
]


AROUND = st.sampled_from(
    [(b"data: ", b"\n\n")] * 8
    + [(b"data:", b"\n\n"), (b"data: ", b"\r\n\r\n"), (b"data:  ", b"\n\n"), (b"data: ", b"\r\r")]
)
PAYLOADS = contents()


@st.composite
def frames(draw: st.DrawFn) -> bytes:
    """One server-sent event, or what stands between two."""
    kind = draw(st.integers(0, 21))
    if kind < 11:
        payload = draw(PAYLOADS)
    elif kind < 13:
        payload = orjson.dumps(chunk(draw(st.sampled_from(DELTAS)), draw(st.sampled_from([None, None, None, "stop"]))))
    elif kind == 13:
        payload = orjson.dumps({**chunk({"content": "f"}), **draw(st.sampled_from(FIELDS))})
    elif kind == 14:
        payload = orjson.dumps({**chunk({}), "choices": [draw(st.sampled_from(CHOICES))]})
    elif kind == 15:
        payload = draw(st.sampled_from(WHOLE))
    elif kind == 16 or kind > 19:
        call = draw(st.sampled_from(CALLS))
        pieces = draw(st.lists(st.integers(1, len(call)), max_size=4))
        cuts = sorted({0, *pieces, len(call)})
        escaped = draw(st.booleans())
        made = [
            json.dumps(chunk({"content": call[a:b]}), ensure_ascii=escaped)
            .replace("<", r"\u003c" if escaped else "<")
            .encode()
            for a, b in itertools.pairwise(cuts)
        ]
        return b"".join(b"data: %b\n\n" % one for one in made)
    elif kind == 17:
        return draw(st.sampled_from([b": hello\n\n", b"\n", b"\r\n", b"id: 1\n", b"event: error\n", b"data\n\n"]))
    else:
        payload = orjson.dumps(chunk({"content": draw(WORDS)}))
    before, after = draw(AROUND)
    return before + payload + after


SEVERAL = st.lists(frames(), max_size=14)


@st.composite
def reads(draw: st.DrawFn) -> list[bytes]:
    """A stream in the pieces in which it is read: mostly whole frames, cut anywhere too."""
    first = b"data: %b\n\n" % orjson.dumps(chunk({"role": "assistant", "content": draw(st.sampled_from(["", "Hi"]))}))
    begins = draw(
        st.sampled_from([first, first, first + b'data: {"choices":[{"index":0,"delta":{"content":"So"}}]}\n\n', b""])
    )
    parts = [begins, *draw(SEVERAL)]
    if draw(st.booleans()):
        parts.append(b"data: %b\n\ndata: [DONE]\n\n" % orjson.dumps(chunk({}, "stop")))
    if draw(st.booleans()):
        return parts
    data = b"".join(parts)
    cuts = sorted({0, len(data), *draw(st.lists(st.integers(0, len(data)), max_size=6))})
    return [data[a:b] for a, b in itertools.pairwise(cuts)]
