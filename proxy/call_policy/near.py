"""Near misses: text that tried to be a call (R23.4, R30.3, R30.4).

Rules of this module:

1. A retry costs a whole answer, and an answer that explains a format is a good answer. A near miss therefore names a
   tool on offer, or a name one edit away from one, in the place of a name: a mention of the tool is none.
2. A template is none: dots, a word in angle brackets or the name of a type stand in place of a value.
3. Without markers, JSON is an attempt only in the shape of a call: a name beside a key of arguments, metadata aside. It
   was written as data otherwise, such as a `package.json` of that name.
4. Where it stands decides as well (`NearMiss.place`). An answer with prose before and behind its attempts explains
   them. Python, JSON with variables and a recited definition are attempts only if the answer is nothing else.
5. A name means a tool if it is one edit away from the name of that tool alone: one character that is missing, too many,
   another one or in its neighbour's place; or all that differs is case and what stands between words.
6. A call whose name is nobody's was meant as one between markers that no text has by chance; in a form that ordinary
   text may have as well only if it is written as it was taught: a name that a tool could have and its arguments, and
   nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from toolwire.call_policy.assembly import PythonArguments
from toolwire.call_policy.candidate import Names
from toolwire.call_policy.json_calls import JsonArguments, MemberArguments
from toolwire.call_policy.tags import name_of
from toolwire.call_policy.written import Written
from toolwire.formats.engine.keys import ARGUMENTS, METADATA, NAMES
from toolwire.model import ToolSpec
from toolwire.repair.repair import read_json
from toolwire.scan._grammar import FENCE, SPACE, BlockSyntax, Field

NAME_CHARS: Final = 256
"""A name that is longer is nobody's."""
LOOKED_CHARS: Final = 64 * 1024
"""How much of an attempt is looked at. What is longer is data, and a search of it all would hold the others up."""

Place = Literal["anywhere", "first", "alone"]

_ELLIPSIS: Final = re.compile(r"[{\[(:,>=]\s*[\"']?(?:\.\.\.|…)[\"']?\s*[}\]),<]")
_PLACEHOLDER: Final = re.compile(r"[:=,(\[]\s*[\"']?<(?!/)[A-Za-z][\w .|-]{0,60}>[\"']?\s*[,}\])]")
_STAND_IN: Final = re.compile(r"\{?(?:\.\.\.|…)\}?|<([A-Za-z][\w .|-]{0,60})>")
_FOR_VALUES: Final = frozenset(
    ("value", "string", "text", "name", "number", "integer", "boolean", "object", "array", "placeholder", "argument")
)
"""Words that stand for a value of any key."""
_A_TYPE: Final = re.compile(
    r":\s*(?:string|number|integer|boolean|object|array|any|str|int|float|bool|list|dict)\s*[,}|]"
)
_A_NAME: Final = re.compile(r"[^\W\d][\w.:/-]*")
_BETWEEN: Final = re.compile(r"[-_.\s]+")
_KEYS: Final = "|".join((*NAMES, "invoke", "call", "to"))
_NAMED: Final = re.compile(rf"(?<![^\W_])(?:{_KEYS})[\"'”]?\s{{0,16}}[=:>]\s{{0,16}}[\"'“”]?([^\W\d][\w.:/-]{{0,255}})")
"""A name in the place of one, in JSON, in an attribute, in a tag or behind `call:` and `to=`."""
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
"""What is longer between quotes and line ends is data, whatever stands in it."""
_CLOSING: Final = "}])>`"
_MARKUP: Final = re.compile(r"<[^<>\n]{0,80}>|\[/?[A-Z_]{2,40}\]|```\w*")
_SENTENCE: Final = re.compile(r"(?<!\w)(?:\w{1,40}[,;:]? ){4}\w")
_WORD: Final = re.compile(r"[^\W\d_]{2}")
_SCHEMAS: Final = ("parameters", "input_schema", "inputSchema", "arguments")
"""Keys under which a tool's definition has its schema."""
_DEFINES: Final = frozenset((*_SCHEMAS, *METADATA, "description", "strict", "title", "returns", "required"))
"""Keys of a tool's definition, beside its name."""


@dataclass(frozen=True, slots=True)
class NearMiss:
    """Text that tried to call `tools`: one name for each call, as the model knows the tools. `why` is what was wrong,
    in words for the model. `text` is the attempt as it stands in the answer, empty if the server gave the call as a
    structure.

    `place`: where in the answer it counts. `anywhere`, but between prose before and behind it; `first`, with nothing
    before it; or `alone`. `cut`: `text` is only the beginning of the attempt.
    """

    why: str
    tools: tuple[str, ...] = ()
    text: str = ""
    place: Place = "anywhere"
    cut: bool = False

    def overlaps(self, other: NearMiss) -> bool:
        """Whether both are the same text, read in two forms."""
        return bool(self.text and other.text) and (self.text in other.text or other.text in self.text)

    def beside(self, *others: Iterable[str]) -> NearMiss:
        """The same with the tools of the other calls in its block."""
        return replace(self, tools=(*self.tools, *(name for names in others for name in names)))


def stand(misses: Sequence[NearMiss], answer: str) -> bool:
    """Whether near misses count where they stand in the visible text of their answer (rule 4)."""
    first = answer.find(misses[0].text)
    last = answer.rfind(misses[-1].text)
    if first < 0 or last < 0:  # what was escaped in it was put back
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


# --- what was tried -------------------------------------------------------------------------------------------------


def unreadable(
    why: str,
    syntax: BlockSyntax,
    body: str,
    names: Names,
    *,
    pieces: Sequence[tuple[Field, str]] = (),
    ended: bool = True,
    named: str | None = None,
    cut: bool = False,
) -> NearMiss | None:
    """The near miss that a block is which cannot be read, or has not `ended`; None if it was not meant as a call.
    `named` is the tool that it names where a call in an unknown form would. `cut`: the body goes on."""
    if syntax.loose:  # it reaches to the end of the answer
        body = body[: max(map(body.rfind, _CLOSING)) + 1]
    if is_template(body):
        return None
    looked = body[:LOOKED_CHARS]
    if is_marked(syntax):
        tools = _named(_in_places(syntax, looked, pieces), names)
        whole = ended or body.lstrip(SPACE)[:1] in ("{", "[")  # else what follows a mention may be prose
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
    if defines and len(tools) > 1:  # a list of tools that was asked for
        return None
    alone = defines or _VARIABLE.search(looked) is not None
    return NearMiss(why, tools, body, "alone" if alone else "anywhere", cut) if tools else None


def misfit(why: str, syntax: BlockSyntax, body: str, written: Written, *, fits_keys: bool = False) -> NearMiss | None:
    """The near miss that a call is whose arguments do not fit; None if it was not meant as a call. `fits_keys`: it has
    arguments, and the tool knows all of them by name."""
    if is_template(body):
        return None
    python = isinstance(written.arguments, PythonArguments)
    if not (is_marked(syntax) or python or fits_keys or has_shape(written)):
        return None
    alone = python and not is_marked(syntax)
    return NearMiss(why, (written.name,), body, "alone" if alone else "anywhere")


def has_shape(written: Written) -> bool:
    """Whether JSON is written as a call: arguments under a key of their own, and else nothing but metadata."""
    match written.arguments:
        case JsonArguments(key=key):
            return key is not None
        case MemberArguments(members=members):
            keys = [key for key in members if key not in METADATA]
            return len(keys) == 1 and keys[0] in ARGUMENTS and isinstance(members[keys[0]][0], str | dict)
    return False


def recites(written: Written, declared: Callable[[], Collection[str]]) -> bool:
    """Whether JSON is the definition of a tool: a schema stands beside the name, perhaps a description, and nothing
    else. `declared` gives the tool's parameters; most calls do not ask."""
    match written.arguments:
        case JsonArguments(key=key, value=value):
            return key is not None and _is_schema(value, declared)
        case MemberArguments(members=members):
            schemas = [value for key in _SCHEMAS if (value := members.get(key, (None, ""))[0]) is not None]
            return members.keys() <= _DEFINES and len(schemas) == 1 and _is_schema(schemas[0], declared)
    return False


def _is_schema(value: Any, declared: Callable[[], Collection[str]]) -> bool:
    """Whether it is the JSON Schema of an object, which is no arguments of a tool that declares these parameters."""
    if not isinstance(value, dict) or not isinstance(value.get("properties"), dict) or "properties" in declared():
        return False
    return "type" not in value or value["type"] == "object"


def is_template(body: str) -> bool:
    """Whether something stands in place of a value (rule 2)."""
    short = "".join(part for part in _PARTS.split(body[:LOOKED_CHARS]) if len(part) <= _PART_CHARS)
    return any(pattern.search(short) is not None for pattern in (_ELLIPSIS, _PLACEHOLDER, _A_TYPE))


def stands_for_values(arguments: str) -> bool:
    """Whether something stands in place of one of these arguments, which are JSON: dots, or words in angle brackets
    that say what the value would be. A tag is a value as any other."""
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
    """Whether blocks stand between markers that no text has by chance."""
    opener = syntax.opener.strip()
    return any(map(str.isalpha, opener)) and not opener.startswith(FENCE)


def means_call(syntax: BlockSyntax, body: str, written: Written) -> bool:
    """Whether this was meant as a call, although no tool has its name (rule 6)."""
    if is_marked(syntax):
        looked = body[:LOOKED_CHARS]
        return any(map(str.isalnum, looked)) and _ELLIPSIS.search(looked) is None
    match written.arguments:
        case MemberArguments():
            return False
        case PythonArguments(call) if call.positional:
            return False
    return _A_NAME.fullmatch(written.name) is not None


# --- names ----------------------------------------------------------------------------------------------------------


def _in_places(syntax: BlockSyntax, body: str, pieces: Sequence[tuple[Field, str]]) -> list[str]:
    """The names that stand in the places of names, first the one that is most certain."""
    certain = [name_of(text, syntax) for field, text in pieces if field in ("name", "id")]
    if not certain and any(branch.field in ("name", "id") for node in syntax.body for branch in node):
        certain += _first_word(syntax, body)
    if not certain and (python := _PYTHON.match(body.lstrip(SPACE))) is not None:
        certain.append(python[1])
    if not (certain or syntax.names) and (only := _ONLY_KEY.match(body.lstrip(SPACE))) is not None:
        certain.append(only[1])
    further = [found[1] for found in _NAMED.finditer(body)]
    for name in certain:
        if name in further:
            further.remove(name)
    return certain + further


def _first_word(syntax: BlockSyntax, body: str) -> Iterator[str]:
    """The word behind the literals with which a block begins, if a word stands there."""
    literals = {branch.literal for node in syntax.body for branch in node if branch.literal}
    head = body.lstrip(SPACE)[: 4 * NAME_CHARS]
    while (begun := max(filter(head.startswith, literals), key=len, default="")) != "":
        head = head[len(begun) :].lstrip(SPACE)
    if (found := _FIRST.match(head)) is not None:
        yield found[1]


def _named(written: Iterable[str], names: Names) -> tuple[str, ...]:
    """The tools that these names mean; none if the first of them means none."""
    tools: list[str] = []
    for name in written:
        meant = tool_of(name, names)
        if meant is None:
            if not tools:
                return ()
            continue
        tools.append(meant)
    return tuple(tools)


def tool_of(name: str, names: Names) -> str | None:
    """The tool that may be called and has this name, or a name one edit away; None if there is none."""
    for spelling in (name, re.sub(r":\d+\Z", "", name).removeprefix("functions.")):
        if names.allowed is not None and spelling in names.allowed:
            return spelling
        if (meant := near_name((spelling,), names.known, names.allowed or ())) is not None:
            return meant
    return None


def near_name(names: Iterable[str | None], known: Mapping[str, ToolSpec], allowed: Collection[str]) -> str | None:
    """The name of the one tool that is meant by the first of these names that means one; None if none does."""
    for name in filter(None, names):
        tools = {id(known[other]): other for other in sorted(allowed, reverse=True) if is_near(name, other)}
        if len(tools) == 1:
            return next(iter(tools.values()))
    return None


def is_near(name: str, other: str) -> bool:
    """Whether one edit makes one name the other (rule 5)."""
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
    at = next((index for index, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), len(one))
    if more:
        return one[at:] == other[at + 1 :]
    swapped = one[at : at + 2] == other[at : at + 2][::-1] and one[at + 2 :] == other[at + 2 :]
    return one[at + 1 :] == other[at + 1 :] or swapped
