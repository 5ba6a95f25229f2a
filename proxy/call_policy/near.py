"""Near misses: text that was meant to be a call (R23.4, R30.3, R30.4).

Rules of this module:

1. A retry costs a whole answer, and an answer that explains a format is a good answer. So a near miss must have the
   name of a tool on offer, or a name one edit away, in the place where calls have the name. A mention of the tool is
   not enough.
2. A template is not a near miss: it has dots, a word in angle brackets or the name of a type instead of a value.
3. Without markers, JSON counts only in the shape of a call: a name beside a key of arguments, metadata aside. Other
   JSON was written as data, such as a `package.json` of that name.
4. The position in the answer counts too (`NearMiss.place`). An answer with prose before and after its attempts explains
   them. Python, JSON with variables and a recited definition count only if the answer is nothing else.
5. A name means a tool if it is one edit away from the name of exactly that tool: one character missing, added, changed
   or swapped with its neighbour; or only case and separators between words differ.
6. A call of an unknown name counts if it stands between markers that ordinary text does not contain by chance. In other
   forms it counts only if it is written exactly as taught: a possible tool name and its arguments, nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from typing import Any, Final, Literal

from ..formats.engine.keys import ARGUMENTS, METADATA, NAMES
from ..model import ToolSpec
from ..repair.relaxed_json import read_json
from ..scan._grammar import FENCE, SPACE, BlockSyntax, Field
from .assembly import PythonArguments
from .candidate import JUDGED, ToolNames
from .json_calls import JsonArguments, MemberArguments
from .tags import name_of
from .written import WrittenCall

NAME_CHARS: Final = 256
"""Maximum number of characters of a tool's name."""
LOOKED_CHARS: Final = 64 * 1024
"""The number of characters of an attempt that are examined. Longer text is data, and searching it all would delay other
requests."""

Place = Literal["anywhere", "first", "alone"]

_ELLIPSIS: Final = re.compile(r"[{\[(:,>=]\s*[\"']?(?:\.\.\.|…)[\"']?\s*[}\]),<]")
_PLACEHOLDER: Final = re.compile(r"[:=,(\[]\s*[\"']?<(?!/)[A-Za-z][\w .|-]{0,60}>[\"']?\s*[,}\])]")
_STAND_IN: Final = re.compile(r"\{?(?:\.\.\.|…)\}?|<([A-Za-z][\w .|-]{0,60})>")
_FOR_VALUES: Final = frozenset(
    ("value", "string", "text", "name", "number", "integer", "boolean", "object", "array", "placeholder", "argument")
)
"""Placeholder words for a value of any key."""
_A_TYPE: Final = re.compile(
    r":\s*(?:string|number|integer|boolean|object|array|any|str|int|float|bool|list|dict)\s*[,}|]"
)
_A_NAME: Final = re.compile(r"[^\W\d][\w.:/-]*")
_BETWEEN: Final = re.compile(r"[-_.\s]+")
_KEYS: Final = "|".join((*NAMES, "invoke", "call", "to"))
_NAMED: Final = re.compile(rf"(?<![^\W_])(?:{_KEYS})[\"'”]?\s{{0,16}}[=:>]\s{{0,16}}[\"'“”]?([^\W\d][\w.:/-]{{0,255}})")
"""A name in its usual place: in JSON, in an attribute, in a tag, or after `call:` or `to=`."""
_ONLY_KEY: Final = re.compile(r"\[?\s{0,8}\{\s{0,8}\"([^\"\\]{1,256})\"\s{0,8}:")
_FIRST: Final = re.compile(r"[\"']?([^\W\d][\w.:/-]{0,255})")
_PYTHON: Final = re.compile(
    r"(?:```[^\S\n]{0,8}\w{0,16}[^\S\n]{0,8}\n)?\[?\s{0,8}(?:await\s|print\(\s{0,8})?([^\W\d][\w.-]{0,255})\s{0,8}\("
)
_ARGUMENTS: Final = re.compile(rf"[\"'](?:{'|'.join(ARGUMENTS)})[\"']\s*:")
_DEFINITION: Final = re.compile(r"[\"'](?:description|properties)[\"']\s*:")
_VARIABLE: Final = re.compile(r"[:\[,]\s*(?!(?:true|false|null|True|False|None)\b)[^\W\d]\w*\s*[,}\]]")
_PARTS: Final = re.compile(r"([\"'\n])")
_PART_CHARS: Final = 60
"""Longer text between quotes or line ends is data and is not examined."""
_CLOSING: Final = "}])>`"
_MARKUP: Final = re.compile(r"<[^<>\n]{0,80}>|\[/?[A-Z_]{2,40}\]|```\w*")
_SENTENCE: Final = re.compile(r"(?<!\w)(?:\w{1,40}[,;:]? ){4}\w")
_WORD: Final = re.compile(r"[^\W\d_]{2}")
_SCHEMAS: Final = ("parameters", "input_schema", "inputSchema", "arguments")
"""Keys under which a tool's definition has its schema."""
_DEFINES: Final = frozenset((*_SCHEMAS, *METADATA, "description", "strict", "title", "returns", "required"))
"""Keys that a tool's definition may have besides `name`."""


@dataclass(frozen=True, slots=True)
class NearMiss:
    """Text that tried to call `tools` (one name per call, as the model knows them). `why` says what was wrong, in words
    for the model. `text` is the attempt as it stands in the answer; it is empty if the server sent the call as a
    structure.

    `place` says where in the answer it counts: `anywhere` except between prose before and after it, `first` with
    nothing before it, or `alone`. `cut`: `text` is only the beginning of the attempt.
    """

    why: str
    tools: tuple[str, ...] = ()
    text: str = ""
    place: Place = "anywhere"
    cut: bool = False

    def overlaps(self, other: NearMiss) -> bool:
        """Returns True if both are the same text, read in two forms."""
        return bool(self.text and other.text) and (self.text in other.text or other.text in self.text)

    def beside(self, *others: Iterable[str]) -> NearMiss:
        """Returns a copy that includes the tools of the other calls in its block."""
        return replace(self, tools=(*self.tools, *(name for names in others for name in names)))


def stand(misses: Sequence[NearMiss], answer: str) -> bool:
    """Returns True if the near misses count, given their position in the visible text of the answer (rule 4)."""
    first = answer.find(misses[0].text)
    last = answer.rfind(misses[-1].text)
    if first < 0 or last < 0:  # not found, because escapes in it were removed
        return True
    end = last + len(misses[-1].text)
    if misses[-1].cut:
        end = max(end, *(answer.rfind(bracket) + 1 for bracket in _CLOSING))
        if is_template(answer[last:end]):
            return False
    before, behind = _is_prose(answer[:first]), _is_prose(answer[end:])
    if any(miss.place == "alone" for miss in misses):
        return not (before or behind)
    if any(miss.place == "first" for miss in misses):
        return not before
    return not (before and behind)


def _is_prose(text: str) -> bool:
    return _WORD.search(_MARKUP.sub(" ", text)) is not None


# --- attempts ------------------------------------------------------------------------------------------------------


def unreadable_block(
    why: str,
    syntax: BlockSyntax,
    body: str,
    names: ToolNames,
    *,
    pieces: Sequence[tuple[Field, str]] = (),
    ended: bool = True,
    named: str | None = None,
    cut: bool = False,
) -> NearMiss | None:
    """Returns the near miss for a block that cannot be read or has not `ended`, or None if it was not meant as a call.
    `named` is the tool that the block names in an unknown form. `cut`: the body goes on."""
    if syntax.loose:  # such a block reaches to the end of the answer
        body = body[: max(map(body.rfind, _CLOSING)) + 1]
    if is_template(body):
        return None
    looked = body[:LOOKED_CHARS]
    if is_marked(syntax):
        tools = _named(_in_places(syntax, looked, pieces), names)
        whole = ended or body.lstrip(SPACE)[:1] in ("{", "[")  # otherwise prose may follow a mention
        return NearMiss(why, tools, body, "anywhere" if whole else "first") if tools else None
    python = _PYTHON.match(looked.lstrip(SPACE))
    if python is not None and (tools := _named((python[1],), names)):
        return NearMiss(why, tools, body, "alone", cut)
    if _ARGUMENTS.search(looked) is None:
        if named is None or _SENTENCE.search(looked) is not None:
            return None
        return NearMiss(why, (named,), body, "alone")
    tools = _named((found[1] for found in _NAMED.finditer(looked)), names)
    defines = _DEFINITION.search(looked) is not None
    if defines and len(tools) > 1:  # a list of tools, probably requested
        return None
    alone = defines or _VARIABLE.search(looked) is not None
    return NearMiss(why, tools, body, "alone" if alone else "anywhere", cut) if tools else None


def misfit(
    why: str, syntax: BlockSyntax, body: str, written: WrittenCall, *, fits_keys: bool = False
) -> NearMiss | None:
    """Returns the near miss for a call whose arguments do not fit, or None if it was not meant as a call. `fits_keys`:
    it has arguments, and all their names are parameters of the tool."""
    if is_template(body):
        return None
    python = isinstance(written.arguments, PythonArguments)
    if not (is_marked(syntax) or python or fits_keys or has_shape(written)):
        return None
    alone = python and not is_marked(syntax)
    return NearMiss(why, (written.name,), body, "alone" if alone else "anywhere")


def has_shape(written: WrittenCall) -> bool:
    """Returns True if JSON has the shape of a call: arguments under their own key, and otherwise only metadata."""
    match written.arguments:
        case JsonArguments(key=key):
            return key is not None
        case MemberArguments(members=members):
            keys = [key for key in members if key not in METADATA]
            return len(keys) == 1 and keys[0] in ARGUMENTS and isinstance(members[keys[0]][0], str | dict)
    return False


def is_tool_definition(written: WrittenCall, declared: Callable[[], Collection[str]]) -> bool:
    """Returns True if JSON is a tool's definition: a schema beside the name, perhaps a description, and nothing else.
    `declared` returns the tool's parameters; it is called only when needed."""
    match written.arguments:
        case JsonArguments(key=key, value=value):
            return key is not None and _is_schema(value, declared)
        case MemberArguments(members=members):
            schemas = [value for key in _SCHEMAS if (value := members.get(key, (None, ""))[0]) is not None]
            return members.keys() <= _DEFINES and len(schemas) == 1 and _is_schema(schemas[0], declared)
    return False


def _is_schema(value: Any, declared: Callable[[], Collection[str]]) -> bool:
    """Returns True if a value is the JSON Schema of an object and cannot be arguments of a tool with these
    parameters."""
    if not isinstance(value, dict) or not isinstance(value.get("properties"), dict) or "properties" in declared():
        return False
    return "type" not in value or value["type"] == "object"


def is_template(body: str) -> bool:
    """Returns True if a placeholder stands in place of a value (rule 2)."""
    return _is_template(body[:LOOKED_CHARS])


@lru_cache(maxsize=1)  # asked for each call of a block
def _is_template(looked: str) -> bool:
    short = "".join(part for part in _PARTS.split(looked) if len(part) <= _PART_CHARS)
    return any(pattern.search(short) is not None for pattern in (_ELLIPSIS, _PLACEHOLDER, _A_TYPE))


def stands_for_values(arguments: str) -> bool:
    """Returns True if one of these arguments (JSON text) is a placeholder: dots, or words in angle brackets that
    describe the value. Any other tag is an ordinary value."""
    value = read_json(arguments)
    members = value.items() if isinstance(value, dict) else ()
    return any(isinstance(text, str) and _stands_in(key, text) for key, text in members)


def _stands_in(key: str, text: str) -> bool:
    found = _STAND_IN.fullmatch(text)
    if found is None or found[1] is None:
        return found is not None
    word, own = _words(found[1]), _words(key)
    return " " in found[1] or own in word or word in own or word in _FOR_VALUES


def is_marked(syntax: BlockSyntax) -> bool:
    """Returns True if blocks of this syntax stand between markers that ordinary text does not contain by chance."""
    opener = syntax.opener.strip()
    return any(map(str.isalpha, opener)) and not opener.startswith(FENCE)


def means_call(syntax: BlockSyntax, body: str, written: WrittenCall) -> bool:
    """Returns True if this was meant as a call although no tool has its name (rule 6)."""
    if is_marked(syntax):
        return _says_something(body[:LOOKED_CHARS])
    match written.arguments:
        case MemberArguments():
            return False
        case PythonArguments(call) if call.positional:
            return False
    return _A_NAME.fullmatch(written.name) is not None


@lru_cache(maxsize=1)  # asked for each call of a block
def _says_something(looked: str) -> bool:
    return any(map(str.isalnum, looked)) and _ELLIPSIS.search(looked) is None


# --- names ----------------------------------------------------------------------------------------------------------


def _in_places(syntax: BlockSyntax, body: str, pieces: Sequence[tuple[Field, str]]) -> list[str]:
    """Returns the names that stand in places of names, the most certain first."""
    certain = [name_of(text, syntax) for field, text in pieces if field in ("name", "id")]
    if not certain and any(branch.field in ("name", "id") for node in syntax.body for branch in node):
        certain += _first_word(syntax, body)
    if not certain and (python := _PYTHON.match(body.lstrip(SPACE))) is not None:
        certain.append(python[1])
    if not (certain or syntax.names) and (only := _ONLY_KEY.match(body.lstrip(SPACE))) is not None:
        certain.append(only[1])
    further = [found[1] for found in _NAMED.finditer(body)]
    for name in certain[:JUDGED]:
        if name in further:
            further.remove(name)
    return certain + further


def _first_word(syntax: BlockSyntax, body: str) -> Iterator[str]:
    """Yields the word after the literals with which a block begins, if there is one."""
    literals = {branch.literal for node in syntax.body for branch in node if branch.literal}
    head = body.lstrip(SPACE)[: 4 * NAME_CHARS]
    while (begun := max(filter(head.startswith, literals), key=len, default="")) != "":
        head = head[len(begun) :].lstrip(SPACE)
    if (found := _FIRST.match(head)) is not None:
        yield found[1]


def _named(written: Iterable[str], names: ToolNames) -> tuple[str, ...]:
    """Returns the tools that these names mean; empty if the first name means none."""
    tools: list[str] = []
    for name in islice(written, JUDGED):
        meant = tool_of(name, names)
        if meant is None:
            if not tools:
                return ()
            continue
        tools.append(meant)
    return tuple(tools)


def tool_of(name: str, names: ToolNames) -> str | None:
    """Returns the callable tool with this name, or with a name one edit away, or None."""
    for spelling in dict.fromkeys((name, re.sub(r":\d+\Z", "", name).removeprefix("functions."))):
        if names.allowed is not None and spelling in names.allowed:
            return spelling
        if (meant := near_name((spelling,), names.known, names.allowed or ())) is not None:
            return meant
    return None


def near_name(names: Iterable[str | None], known: Mapping[str, ToolSpec], allowed: Collection[str]) -> str | None:
    """Returns the tool meant by the first of these names that means exactly one tool, or None."""
    for name in filter(None, names):
        tools = {id(known[other]): other for other in _near_ones(name, frozenset(allowed))}
        if len(tools) == 1:
            return next(iter(tools.values()))
    return None


def _near_ones(name: str, allowed: frozenset[str]) -> list[str]:
    """Returns the names that are near this one, last first."""
    if len(name) > NAME_CHARS:
        return []
    by_length, by_words = _indexed(allowed)
    found = set(by_words.get(_words(name), ()))
    for length in range(len(name) - 1, len(name) + 2):
        found.update(other for other in by_length.get(length, ()) if _is_one_edit(name, other))
    return sorted(found, reverse=True)


@lru_cache(maxsize=8)
def _indexed(allowed: frozenset[str]) -> tuple[Mapping[int, list[str]], Mapping[str, list[str]]]:
    """Returns the names by their length, and by their words if they have any."""
    by_length: dict[int, list[str]] = {}
    by_words: dict[str, list[str]] = {}
    for name in allowed:
        by_length.setdefault(len(name), []).append(name)
        if words := _words(name):
            by_words.setdefault(words, []).append(name)
    return by_length, by_words


def is_near(name: str, other: str) -> bool:
    """Returns True if the names are one edit apart (rule 5)."""
    if len(name) > NAME_CHARS:
        return False
    return _is_one_edit(name, other) or _words(name) == _words(other) != ""


def _words(name: str) -> str:
    return _BETWEEN.sub("", name).casefold()


def _is_one_edit(one: str, other: str) -> bool:
    if len(one) > len(other):
        one, other = other, one
    more = len(other) - len(one)
    if more > 1:
        return False
    half = (len(one) - 1) // 2  # an edit leaves one of the halves as it is
    if one[:half] != other[:half] and one[-half:] != other[-half:]:
        return False
    at, beyond = 0, len(one)  # bounds of the first difference
    while at < beyond:
        middle = (at + beyond + 1) // 2
        at, beyond = (middle, beyond) if one[:middle] == other[:middle] else (at, middle - 1)
    if more:
        return one[at:] == other[at + 1 :]
    swapped = one[at : at + 2] == other[at : at + 2][::-1] and one[at + 2 :] == other[at + 2 :]
    return one[at + 1 :] == other[at + 1 :] or swapped
