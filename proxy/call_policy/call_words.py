"""Words and patterns in the markup of calls, grouped by role rather than by model (R30.1)."""

from __future__ import annotations

import json
import re
from typing import Final

from ..formats.engine.keys import METADATA
from ..scan._grammar import SPACE
from .markup import Tag
from .untyped import OTHERS, STRING, Types

CALLISH: Final = re.compile(r"tool|call|func|invoke|action|execute|use|python_")
FRAMING: Final = re.compile(
    r"tool|call|func|invoke|action|execute|use|begin|end|start|stop|sep|message|channel|im_|eot|eom|eos|turn|section"
    r"|header|constrain|arg|param|name|input|json|xml|assistant|recipient|\Aopen\Z|\Aclose\Z|\As\Z"
)
NO_FRAMING: Final = re.compile(r"result|response|output|observation|defin|example|schema|descri")
PARAMETER: Final = frozenset(
    ("parameter", "parameters", "param", "arg", "argument", "property", "field", "input", "key", "arg_key")
)
KEY: Final = frozenset(("arg_key", "key", "param_name", "parameter_name", "arg_name", "argument_name", "param_key"))
VALUE: Final = frozenset(("arg_value", "value", "param_value", "parameter_value", "argument_value"))
KEY_ATTRIBUTES: Final = ("name", "key", "param", "parameter", "arg")
NAME_ATTRIBUTES: Final = ("name", "tool", "tool_name", "function", "function_name", "to", "recipient", "id")
OTHER_ATTRIBUTES: Final = frozenset((*NAME_ATTRIBUTES, *METADATA, "string", "version", "key"))

LINE: Final = re.compile(r"^[ \t]*", re.MULTILINE)
A_WORD: Final = re.compile(r"[^\W\d_][\w-]*(?:[.:/][\w-]+)*")
LABEL: Final = re.compile(
    r"(?:assistant|commentary|analysis|to|json|xml|python|functools|calling|calls?|tool|tools|function|functions"
    r"|tool_?calls?|function_?calls?|tool_name|tool_code|name|invoke|execute|print|await|type|using|use|the)(?![\w-])",
    re.IGNORECASE,
)
PUNCTUATION: Final = re.compile(r"[\s:=,;*#\"'\]()}>|｜‖-]+")
CLOSERS: Final = re.compile(r"[\s,;:\])}>\"'`|]+")
FENCE_LINE: Final = re.compile(r"[ \t]*```[\w-]*[ \t]*\n?")
BEFORE_ARGUMENTS: Final = re.compile(
    r"""\*{0,2}(?:with\ (?:the\ )?)?(?:(?:tool|function|call)[ _])?["']?
    (?:arguments|args|parameters|params|inputs?|kwargs|json)["']?\*{0,2}\s*[:=]?\*{0,2}\s*(?=[{(<`])""",
    re.IGNORECASE | re.VERBOSE,
)
BEFORE_OBJECT: Final = re.compile(r"[\s>:=,\"'-]*(?=[{(])|\s*[>:]?\s*")
OBJECT: Final = re.compile(r"""\{\s*(?:["'<]|[\w$]+\s*[:=])""")
NUMBERED: Final = re.compile(r":\d+\Z")
BEHIND_NAME: Final = re.compile(r"(?::\d+)?+(?:\.(?:call|invoke|run|execute)(?=\())?+>?")
UNCLOSED_TAG: Final = re.compile(
    r"""[<‹]\s?(?:function|tool|call|invoke)(?:_call|_name)?(?:\ name)?\s?[=:(]\s?["']?([\w.:/-]+)["']?\s?[),:]?\s?(?=[{(])""",
    re.IGNORECASE,
)
"""A tag that names a tool and is not closed: the arguments follow immediately."""
WORD_BEFORE_TAG: Final = re.compile(r"\s*([\w.$-]+)\s*(?=[<‹])")
PAIR: Final = re.compile(
    r"""([\w.$-]++)\s*+=\s*+(?:"([^"\\\n]*+)"|'([^'\\\n]*+)'|([^\s"'=,;<>]++))(?:[,;]?\s++|[,;]?\Z)"""
)
"""A `key=value` whose value has an end that cannot be mistaken."""
BEGUN_PAIR: Final = re.compile(r"\s*+([\w.$-]++)\s*+[=:]")
QUOTED_KEY: Final = re.compile(r"""["']([\w.$-]++)["']""")
PLACEHOLDER: Final = re.compile(
    r"your|value|text|string|here|name|query|path|city|command|content|number|argument|param", re.IGNORECASE
)
PLACEHOLDER_CHARS: Final = 48
DOTS: Final = ("...", "…")
STOP_TOKENS: Final = ("<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "<|eot|>", "<|endoftext|>", "</s>")

BOTH: Final = frozenset((*PARAMETER, *VALUE)) - KEY


def explains(text: str) -> bool:
    """Returns True if a JSON string is a placeholder: dots, or certain words in brackets."""
    if text[:1] != '"' or len(text) > PLACEHOLDER_CHARS:
        return False
    content = json.loads(text).strip(SPACE)
    between = content[:1] in ("<", "{", "[") and content[-1:] in (">", "}", "]")
    return content in DOTS or (between and PLACEHOLDER.search(content) is not None)


def is_framing(tag: Tag) -> bool:
    """Returns True for a tag that surrounds calls but is not part of one."""
    framing = tag.special or FRAMING.search(tag.word) is not None
    return framing and NO_FRAMING.search(tag.word) is None


def ends_call(tag: Tag) -> bool:
    """Returns True for a tag that can end a call or its last argument."""
    return tag.special or CALLISH.search(tag.word) is not None or tag.word in BOTH


def closes(tag: Tag, opener: Tag, key: str) -> bool:
    """Returns True if a tag closes the value of `key` that `opener` opened."""
    return tag.closing and (tag.word == opener.word or tag.written == key)


def types_in(tag: Tag) -> Types | None:
    """Returns the types that a tag's `string="true"` allows, or None without that attribute."""
    attribute = tag.attributes.get("string")
    return None if attribute is None else STRING if attribute == "true" else OTHERS


def past_space(text: str, at: int) -> int:
    """Returns the first position at or after `at` that is not whitespace."""
    while at < len(text) and text[at] in SPACE:
        at += 1
    return at


_STRAY: Final = re.compile(r"<(/?)\s?([\w-]{1,64}+)(?:=[\w.-]{0,64}+|\s[^<>]{0,99}+)?>\s*\Z")
"""A tag at the end of a value."""
_STRAY_CHARS: Final = 256
_STRAY_TAGS: Final = 4
"""The most tags that are removed: each is searched for in the whole value."""
_STRAY_WORDS: Final = PARAMETER | KEY | VALUE | {"function", "invoke", "tool_call", "arguments"}


def without_closers(value: str, key: str) -> str:
    """Returns the `value` of the argument `key` without the wrong tags at its end: tags of calls and arguments that a
    model wrote in place of the value's own closing tag. A closing tag whose opening tag is in the value stays."""
    for _ in range(_STRAY_TAGS):
        found = _STRAY.search(value, max(0, len(value) - _STRAY_CHARS))
        if found is None:
            break
        closing, word = found[1], found[2]
        if word not in _STRAY_WORDS and not (closing and word == key):
            break
        if value.find(f"<{word}", 0, found.start()) >= 0:
            break
        value = value[: found.start()]
    return value
