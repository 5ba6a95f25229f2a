"""Calls in damaged and unknown forms: a text is taken apart into names, keys and values (R30.1).

Rules of this module:

1. The text is calls from where it begins to its end: between and behind them stands framing only, which is tags of
   tools and calls, tags that close something, special tokens, fences and brackets. Any other word makes it text.
2. A name is exactly that of a tool that may be called, perhaps behind a namespace, and stands where names stand: in a
   tag, in a member of an object, or right behind a tag or the word `call:`.
3. Keys are declared properties of the tool. Each has one value; a key that is not declared, or comes twice with
   different values, makes all of it text.
4. A value ends where its closing tag stands, if what follows may follow a value; else where the tag of a property that
   has no value yet, or the end of the call, shows that its closing tag is missing.
5. Where arguments stand in tags and nothing closes the call, it is one only if all properties have values, or another
   call follows: else more of them may have been to come.
6. Text without a key is the value of the only property that takes it: the one that is required, or the only one.
7. Dots and words between angle brackets that stand for a value are no values: they explain a form.

Whether the arguments fit is for the caller to say.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any, Final

from ..formats.keys import ARGUMENTS, METADATA, NAMES, WRAPPERS
from ..scan._grammar import FENCE, SPACE
from ..scan.literals import json_string
from .json_calls import TextArguments
from .markup import Tag, Unreadable, Value, next_tag, read_json_like, read_members, tag_at
from .tags import unframed
from .untyped import OTHERS, STRING, ParameterTypes, Types, typed_value
from .written import Written, object_text

MAX_STARTS: Final = 4
"""How many lines of a text are tried as the first one of its calls."""

MAX_CALLS: Final = 256
"""Calls that are read in one text."""

_CALLISH: Final = re.compile(r"tool|call|func|invoke|action|execute|use")
_FRAMING: Final = re.compile(
    r"tool|call|func|invoke|action|execute|use|begin|end|start|stop|sep|message|channel|im_|eot|eom|eos|turn|section"
    r"|header|constrain|arg|param|name|input|json|xml|assistant|recipient|\Aopen\Z|\Aclose\Z|\As\Z"
)
_NO_FRAMING: Final = re.compile(r"result|response|output|observation|defin|example|schema|descri")
_PARAMETER: Final = frozenset(
    ("parameter", "parameters", "param", "arg", "argument", "property", "field", "input", "key", "arg_key")
)
_KEY: Final = frozenset(("arg_key", "key", "param_name", "parameter_name", "arg_name", "argument_name", "param_key"))
_VALUE: Final = frozenset(("arg_value", "value", "param_value", "parameter_value", "argument_value"))
_KEY_ATTRIBUTES: Final = ("name", "key", "param", "parameter", "arg")
_NAME_ATTRIBUTES: Final = ("name", "tool", "tool_name", "function", "function_name", "to", "recipient", "id")
_OTHER_ATTRIBUTES: Final = frozenset((*_NAME_ATTRIBUTES, *METADATA, "string", "version", "key"))

_LINE: Final = re.compile(r"^[ \t]*", re.MULTILINE)
_A_WORD: Final = re.compile(r"[^\W\d_][\w-]*(?:[.:/][\w-]+)*")
_LABEL: Final = re.compile(
    r"(?:assistant|commentary|analysis|to|json|xml|python|functools|calling|calls?|tool|tools|function|functions"
    r"|tool_?calls?|function_?calls?|tool_name|tool_code|name|invoke|execute|type|using|the)(?![\w-])",
    re.IGNORECASE,
)
_PUNCTUATION: Final = re.compile(r"[\s:=,;*#\"'\]()}>|｜‖-]+")
_CLOSERS: Final = re.compile(r"[\s,;:\])}>\"'`|]+")
_FENCE: Final = re.compile(r"[ \t]*```[\w-]*[ \t]*\n?")
_BEFORE_ARGUMENTS: Final = re.compile(
    r"(?:[\"']?(?:arguments|args|parameters|params|input|inputs|kwargs|json)[\"']?\s*[:=]?\s*)(?=[{(<`])",
    re.IGNORECASE,
)
_BEFORE_OBJECT: Final = re.compile(r"[\s>:=,\"'-]*(?=[{(])|\s*[>:]?\s*")
_OBJECT: Final = re.compile(r"""\{\s*(?:["'<]|[\w$]+\s*[:=])""")
_NUMBERED: Final = re.compile(r":\d+\Z")
_BEHIND_NAME: Final = re.compile(r"(?::\d+)?+>?")
_WORD_BEFORE_TAG: Final = re.compile(r"\s*([\w.$-]+)\s*(?=[<‹])")
_PLACEHOLDER: Final = re.compile(
    r"your|value|text|string|here|name|query|path|city|command|content|number|argument|param", re.IGNORECASE
)
_PLACEHOLDER_CHARS: Final = 48
_DOTS: Final = ("...", "…")
_STOP_TOKENS: Final = ("<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "<|eot|>", "<|endoftext|>", "</s>")

_OPENED: Final = (("<|open|>", "<"), ("<|close|>", "</"), ("<|sep|>", ">"))
"""Tokens that stand for the brackets of tags."""

TypesOf = Callable[[str], ParameterTypes]


class NoCall(Exception):
    """The text is none. `name` is that of the tool which it names in the place of a call, if it does. `begun`: calls
    stand before what makes it text."""

    def __init__(self, name: str | None = None, *, begun: bool = False) -> None:
        super().__init__(name)
        self.name = name
        self.begun = begun


@dataclass(slots=True)
class Recovered:
    """The calls of a text, and how many characters of text stand before them."""

    before: int
    calls: list[Written]


def recover(text: str, names: Collection[str], types_of: TypesOf) -> Recovered:
    """The calls that `text` ends with, which begin at its start or at a further line of it. `names` may be called,
    `types_of` says what each takes. Raises `NoCall`."""
    named: str | None = None
    for start in _starts(text):
        try:
            calls = _Reading(text[start:], names, types_of).calls()
        except NoCall as none:
            named = named or none.name
            if none.begun:
                break
        else:
            return Recovered(start, calls)
    raise NoCall(named)


def _starts(text: str) -> Iterator[int]:
    """The start of the text, and of the next lines outside of fences that may begin a call."""
    yield 0
    tried, fenced = 1, False
    for line in _LINE.finditer(text):
        begins = text[line.end() : line.end() + 1]
        fence = text.startswith(FENCE, line.end())
        if line.end() and not fenced and (begins in ("<", "[", "‹") or fence or text.startswith("call:", line.end())):
            yield line.end()
            tried += 1
            if tried == MAX_STARTS:
                return
        fenced ^= fence


class _Reading:
    """Reads one text. `at` is where."""

    def __init__(self, text: str, names: Collection[str], types_of: TypesOf) -> None:
        while (end := text.rstrip(SPACE)).endswith(_STOP_TOKENS):
            text = end[: end.rindex("<")]
        if "<|sep|>" in text:
            for token, bracket in _OPENED:
                text = text.replace(token, bracket)
        self.text = text
        self.at = 0
        self._names = names
        self._types_of = types_of
        self._marked = False  # a tag of tools or calls stands before
        self._labelled = False  # or a word that says so
        self._ended = False  # a tag that closes the call stands behind its arguments
        self._tag: Tag | None = None  # in which the last name stood
        self._found: list[Written] = []

    def calls(self) -> list[Written]:
        """All calls of the text. Raises `NoCall` and `Unreadable`."""
        named: str | None = None
        try:
            while not self._at_end():
                if self._skip_framing():
                    continue
                if self._objects():
                    continue
                name = self._name()
                if name is None or len(self._found) >= MAX_CALLS:
                    raise NoCall(named)
                named = name
                arguments = self._arguments(name)
                if arguments is not None:
                    self._found.append(self._written(name, arguments))
        except (NoCall, Unreadable):
            raise NoCall(named, begun=bool(self._found)) from None
        if not self._found:
            raise NoCall(named)
        return self._found

    def _at_end(self) -> bool:
        """Nothing but closers follows."""
        while self.at < len(self.text):
            closers = _CLOSERS.match(self.text, self.at)
            if closers is not None:
                self.at = closers.end()
                continue
            tag = tag_at(self.text, self.at)
            if tag is None or not self._found or self._name_of(tag) is not None:
                return False
            if not (tag.closing or tag.special):
                return False
            self.at = tag.end
        return True

    # --- framing and names ------------------------------------------------------------------------------------------

    def _skip_framing(self) -> bool:
        """Pass what stands around calls; whether anything did."""
        start = self.at
        while self.at < len(self.text):
            char = self.text[self.at]
            if char in "{[" and self._begins_object():
                break
            if fence := _FENCE.match(self.text, self.at):
                self.at = fence.end()
                continue
            tag = tag_at(self.text, self.at)
            if tag is not None:
                if self._name_of(tag) is not None or not (tag.closing or _is_framing(tag)):
                    break
                self._marked = self._marked or _CALLISH.search(tag.word) is not None
                self.at = tag.end
                continue
            if char in "<‹":
                break
            if punctuation := _PUNCTUATION.match(self.text, self.at):
                self.at = punctuation.end()
                continue
            if char == "[":
                self.at += 1
                continue
            word = _A_WORD.match(self.text, self.at)
            if word is not None and self._named(word[0]) is not None:
                break
            label = _LABEL.match(self.text, self.at)
            if label is None:
                break
            self._labelled = self._labelled or _CALLISH.search(label[0].lower()) is not None
            self.at = label.end()
        return self.at > start

    def _begins_object(self) -> bool:
        """An object stands here, or a list of such."""
        text, at = self.text, self.at
        if text[at] == "[":
            at = _past_space(text, at + 1)
        return _OBJECT.match(text, at) is not None

    def _named(self, written: str) -> str | None:
        """The tool that is meant by a name as it was written."""
        if written in self._names:
            return written
        plain = _NUMBERED.sub("", written.partition("<")[0].strip(" \"'")).removesuffix(":")
        if plain in self._names:
            return plain
        for separator in (":", ".", "/"):
            last = plain.rpartition(separator)[2]
            if last in self._names:
                return last
        return None

    def _name_of(self, tag: Tag) -> str | None:
        """The tool that a tag names."""
        if tag.closing or _NO_FRAMING.search(tag.word):
            return None
        written = [tag.inline] if tag.inline is not None else []
        written += [tag.attributes[key] for key in _NAME_ATTRIBUTES if key in tag.attributes]
        for name in written:
            if (found := self._named(name)) is not None:
                return found
        return self._named(tag.written) if tag.inline is None and not written else None

    def _name(self) -> str | None:
        """The name of a tool that stands here, in a tag or as a word; reading goes on behind it."""
        tag = tag_at(self.text, self.at)
        if tag is not None:
            name = self._name_of(tag)
            if name is None:
                return None
            self._tag = tag
            if tag.attributes and self._named(tag.written) and not self._marked:
                return None  # an element with attributes, as any document has them
            self._marked = self._marked or self._named(tag.written) is None
            self.at = tag.end
            return name
        word = _A_WORD.match(self.text, self.at)
        if word is None:
            return None
        self._tag = None
        written = word[0]
        while written and self._named(written) is None and written[-1] not in ".:/":
            cut = max(written.rfind(separator) for separator in ":./")
            if cut < 0:
                return None
            written = written[:cut]
        name = self._named(written)
        if name is not None:
            self.at = word.start() + len(written)
            behind = _BEHIND_NAME.match(self.text, self.at)
            self.at = self.at if behind is None else behind.end()
        return name

    # --- arguments --------------------------------------------------------------------------------------------------

    def _arguments(self, name: str) -> dict[str, str] | None:
        """The arguments of a call, as JSON texts; None if the name is repeated by what follows."""
        known = self._types_of(name)
        found: dict[str, str] = {}
        tag = self._tag
        if tag is not None and tag.inline is None:
            own = {key: value for key, value in tag.attributes.items() if key not in _OTHER_ATTRIBUTES}
            own |= {k: v for k, v in tag.attributes.items() if k in known.names and self._named(v) != name}
            for key, value in own.items():
                if key not in known.names:
                    raise NoCall(name)
                found[key] = typed_value(value, known.of(key))
        start = self.at
        if not found:
            self._skip_before_arguments()
            bracket = self.text[self.at : self.at + 1]
            if bracket == "{" or (bracket == "(" and (self._marked or self._labelled)):
                return self._in_brackets(name, known)
            self.at = start
        if self._in_tags(name, known, found):
            self._must_be_whole(name, known, found)
            return found
        self.at = start
        if not found and (only := self._only_value(known)) is not None:
            self._must_be_whole(name, known, only)
            return only
        if not found:
            return self._none(name, known)
        return found

    def _skip_before_arguments(self) -> None:
        """Pass what may stand between a name and an object."""
        while True:
            start = self.at
            before = _BEFORE_OBJECT.match(self.text, self.at)
            if before is not None:
                self.at = before.end()
            word = _BEFORE_ARGUMENTS.match(self.text, self.at)
            if word is not None:
                self.at = word.end()
            fence = _FENCE.match(self.text, self.at)
            if fence is not None:
                self.at = fence.end()
            tag = tag_at(self.text, self.at)
            if tag is not None and (tag.closing or _is_framing(tag)) and not (tag.inline or tag.attributes):
                self.at = tag.end if self._name_of(tag) is None else self.at
            if self.at == start:
                return

    def _in_brackets(self, name: str, known: ParameterTypes) -> dict[str, str]:
        """Arguments in an object, or between parentheses."""
        if self.text[self.at] == "(":
            inner = _past_space(self.text, self.at + 1)
            if self.text[inner : inner + 1] == "{":
                self.at = inner
        members, self.at = read_members(self.text, self.at, known.names)
        return _settled(members, known, name)

    def _in_tags(self, name: str, known: ParameterTypes, found: dict[str, str]) -> bool:
        """Arguments in tags, put into `found`; whether there were some."""
        key: str | None = None
        self._ended = False
        while True:
            at = _past_space(self.text, self.at)
            tag = tag_at(self.text, at)
            if tag is None:
                word = _WORD_BEFORE_TAG.match(self.text, self.at)
                if key is not None or word is None or word[1] not in known.names:
                    break
                behind = tag_at(self.text, word.end())
                if behind is None or (behind.word not in _KEY | _VALUE and not behind.closing):
                    break
                key, self.at = word[1], behind.end if behind.closing else word.end()
                continue
            if tag.closing:
                self._ended = self._ended or self._closes_call(tag)
                self.at = tag.end
                continue
            if key is None and self._name_of(tag) is not None and self._key_of(tag, known) is None:
                break
            declared = self._key_of(tag, known)
            if declared is not None and key is None:
                types = _types_in(tag)
                self._put(found, declared, self._value(tag, known, found, declared), types, known, name)
                continue
            if tag.word in _VALUE and key is not None:
                self._put(found, key, self._value(tag, known, found, key), _types_in(tag), known, name)
                key = None
                continue
            if tag.word in _PARAMETER and (tag.inline or any(k in tag.attributes for k in _KEY_ATTRIBUTES)):
                raise NoCall(name)  # a key that is not declared
            if tag.word in _KEY:
                word = _WORD_BEFORE_TAG.match(self.text, tag.end)
                if word is None or word[1] not in known.names:
                    raise NoCall(name)
                self.at = tag.end
                continue
            if not _is_framing(tag):
                break
            self.at = tag.end
        if key is not None:
            raise NoCall(name)
        return bool(found)

    def _closes_call(self, tag: Tag) -> bool:
        """Whether a closing tag is that of a call, not that of a value."""
        return tag.word not in _BOTH and (_ends_call(tag) or self._named(tag.written) is not None)

    def _must_be_whole(self, name: str, known: ParameterTypes, found: Collection[str]) -> None:
        """Raise `NoCall` if more arguments may have been to come (rule 5)."""
        if set(known.names) <= set(found):
            return
        closed = False
        while self.at < len(self.text):
            start = self.at
            tag = tag_at(self.text, self.at)
            if tag is not None and tag.closing:
                closed = closed or self._closes_call(tag)
                self.at = tag.end
            elif closers := _CLOSERS.match(self.text, self.at):
                self.at = closers.end()
            if self.at == start:
                break
        if not closed and self.at == len(self.text) and not self._ended:
            raise NoCall(name)

    def _key_of(self, tag: Tag, known: ParameterTypes) -> str | None:
        """The property whose value the tag opens."""
        names = known.names
        keys = [tag.inline] if tag.inline is not None else [tag.attributes.get(key) for key in _KEY_ATTRIBUTES]
        for key in keys:
            if key is not None and key.strip() in names:
                return key.strip()
        if tag.inline is None and not tag.attributes and tag.written in names:
            return tag.written
        if tag.inline is None and tag.written in names and "type" in tag.attributes:
            return tag.written
        return None

    def _put(
        self, found: dict[str, str], key: str, value: str, types: Types | None, known: ParameterTypes, name: str
    ) -> None:
        text = typed_value(value, types or known.of(key))
        if found.setdefault(key, text) != text:
            raise NoCall(name)

    def _value(self, opener: Tag, known: ParameterTypes, found: Collection[str], key: str) -> str:
        """The value behind the tag that opens it; reading goes on behind its end."""
        text, start = self.text, opener.end
        at = start
        while (tag := next_tag(text, at)) is not None:
            at = tag.start + 1
            own = _closes(tag, opener, key)
            if tag.closing:
                ends = (own or _ends_call(tag)) and self._may_follow(tag.end, known)
            else:
                other = self._key_of(tag, known)
                ends = tag.word in _KEY or (other is not None and other != key and other not in found)
            if not ends:
                continue
            behind = tag_at(text, _past_space(text, tag.end))
            if tag.closing and behind is not None and _closes(behind, opener, key):
                if own:
                    raise NoCall  # this one may be part of the value
                continue
            self.at = tag.end if own else tag.start
            return unframed(text[start : tag.start].removesuffix(f"{opener.written}>"))
        raise NoCall

    def _may_follow(self, at: int, known: ParameterTypes) -> bool:
        """Whether what stands at `at` may follow a value: a tag of calls, of a property or one that closes; the end."""
        closers = _CLOSERS.match(self.text, at)
        at = at if closers is None else closers.end()
        if at == len(self.text):
            return True
        tag = tag_at(self.text, at)
        if tag is not None:
            return tag.closing or _is_framing(tag) or self._key_of(tag, known) is not None or bool(self._name_of(tag))
        word = _WORD_BEFORE_TAG.match(self.text, at)
        return word is not None and (word[1] in known.names or self._named(word[1]) is not None)

    def _only_value(self, known: ParameterTypes) -> dict[str, str] | None:
        """Text without a key, for the only property that takes it."""
        required = [key for key in known.names if key in known.required] or [*known.names]
        if len(required) != 1 or not self._marked:
            return None
        types = known.of(required[0])
        text, start = self.text, self.at
        if tag_at(text, _past_space(text, start)) is not None:
            return None
        at = start
        end = None
        while (tag := next_tag(text, at)) is not None:
            if tag.closing and (_ends_call(tag) or tag.word in _VALUE) and self._may_follow(tag.end, known):
                end = tag
                break
            at = tag.start + 1
        if end is None:
            return None
        value = unframed(text[start : end.start]) if text[start] == "\n" else text[start : end.start].strip(SPACE)
        if not value.strip(SPACE) or (types is not None and types != STRING and "string" in types):
            return None
        self.at = end.end
        self._ended = end.word not in _BOTH | _VALUE
        return {required[0]: typed_value(value, types)}

    def _none(self, name: str, known: ParameterTypes) -> dict[str, str] | None:
        """No arguments: framing follows, or the next call."""
        while not self._at_end() and self._skip_framing():
            pass
        if self.at < len(self.text):
            at = self.at
            again = self._name()
            self.at = at
            if again is None:
                raise NoCall(name)
            if again == name and (known.names or known.required):
                return None  # the header named it already
        if known.required or not self._marked:
            raise NoCall(name)
        return {}

    # --- whole calls as objects -------------------------------------------------------------------------------------

    def _objects(self) -> bool:
        """A call as an object, or a list of such, if one stands here."""
        if self.text[self.at] not in "{[" or not self._begins_object():
            return False
        text, self.at = read_json_like(self.text, self.at)
        value = json.loads(text)
        for item in value if isinstance(value, list) else [value]:
            self._object(item)
        return True

    def _object(self, value: Any) -> None:
        if not isinstance(value, dict):
            raise NoCall
        for key in ("tool_calls", "calls", "function_calls"):
            if isinstance(value.get(key), list) and key not in NAMES:
                for item in value[key]:
                    self._object(item)
                return
        for wrapper in WRAPPERS:
            inner = value.get(wrapper)
            if isinstance(inner, dict):
                self._object({**{k: v for k, v in value.items() if k != wrapper}, **inner})
                return
        if len(value) == 1 and self._named(alone := next(iter(value))) is not None:
            value = {"name": alone, "arguments": value[alone]}
        names = {key: self._named(value[key]) for key in NAMES if isinstance(value.get(key), str)}
        key, name = next(((key, name) for key, name in names.items() if name is not None), ("", None))
        if name is None:
            raise NoCall
        rest = {other: item for other, item in value.items() if other != key}
        known = self._types_of(name)
        under = next((other for other in ARGUMENTS if other in rest), None)
        arguments = None if under is None else _from_text(rest[under])
        if not isinstance(arguments, dict) or not arguments.keys() <= set(known.names):
            empty = under if under is not None and rest[under] in (None, "", "{}", {}) else None
            arguments = {
                other: item for other, item in rest.items() if other in known.names or other not in (*METADATA, empty)
            }
        members = [(key, Value(_dumps(item))) for key, item in arguments.items()]
        self._found.append(self._written(name, _settled(members, known, name)))

    def _written(self, name: str, arguments: dict[str, str]) -> Written:
        if any(_explains(text) for text in arguments.values()):
            raise NoCall
        return Written(name, TextArguments(object_text(arguments.items()), "object"))


_BOTH: Final = frozenset((*_PARAMETER, *_VALUE)) - _KEY


def _settled(members: list[tuple[str, Value]], known: ParameterTypes, name: str) -> dict[str, str]:
    """Members as arguments. An object that holds all of them under one of the usual keys is unwrapped."""
    keys = {key for key, _ in members}
    if len(members) == 1 and not keys <= set(known.names) and members[0][0] in ARGUMENTS:
        value = _from_text(json.loads(members[0][1].as_json(None)))
        if isinstance(value, dict):
            members = [(key, Value(_dumps(item))) for key, item in value.items()]
    found: dict[str, str] = {}
    for key, value in members:
        if key not in known.names:
            raise NoCall(name)
        text = value.as_json(known.of(key))
        if found.setdefault(key, text) != text:
            raise NoCall(name)
    return found


def _from_text(value: Any) -> Any:
    """What a string of JSON holds; else the value itself."""
    if isinstance(value, str) and value.strip(SPACE)[:1] == "{":
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value


def _dumps(value: Any) -> str:
    return json_string(value) if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _explains(text: str) -> bool:
    """A string that stands for a value: dots, or one of some words between brackets."""
    if text[:1] != '"' or len(text) > _PLACEHOLDER_CHARS:
        return False
    said = json.loads(text).strip(SPACE)
    between = said[:1] in ("<", "{", "[") and said[-1:] in (">", "}", "]")
    return said in _DOTS or (between and _PLACEHOLDER.search(said) is not None)


def _is_framing(tag: Tag) -> bool:
    framing = tag.special or _FRAMING.search(tag.word) is not None
    return framing and _NO_FRAMING.search(tag.word) is None


def _ends_call(tag: Tag) -> bool:
    return tag.special or _CALLISH.search(tag.word) is not None or tag.word in _BOTH


def _closes(tag: Tag, opener: Tag, key: str) -> bool:
    """Whether a tag is the one that closes the value of `key`, which `opener` opened."""
    return tag.closing and (tag.word == opener.word or tag.written == key)


def _types_in(tag: Tag) -> Types | None:
    """The types that a tag allows: `string="true"`."""
    said = tag.attributes.get("string")
    return None if said is None else STRING if said == "true" else OTHERS


def _past_space(text: str, at: int) -> int:
    while at < len(text) and text[at] in SPACE:
        at += 1
    return at
