"""Frozen dataclasses from plain mappings and back, driven by their type hints. Nothing here knows what is configured.

Rules of this module:

1. The type hints are the only description. Understood are dataclasses, `int`, `float`, `bool`, `str`, `Any`, `Literal`,
   enumerations, unions with or without `None`, `tuple`, `list`, `frozenset` and mappings with text keys.
2. Every mistake is reported, not only the first, each with its key path (`routes[0].options.format`), the value and
   what was expected. A value below a secret key is never shown.
3. `bool` is not `int`, and a text is not a number. Only an `EnvText`, whose source knows no types, is read as what is
   wanted.
4. Law: `from_mapping(type(x), to_mapping(x)) == x`.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import re
import types
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, field
from enum import Enum
from functools import cache
from typing import Any, Final, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from toolwire.errors import quote
from toolwire.support.plainyaml import parse_yaml

T = TypeVar("T")

SECRET_KEYS: Final = frozenset({"api_key", "env", "headers", "keys", "password", "secret", "token"})
"""Keys below which no value is ever quoted in a message."""

_TRUE: Final = frozenset({"true", "1", "yes", "on"})
_FALSE: Final = frozenset({"false", "0", "no", "off"})
_NULL: Final = frozenset({"", "null", "~"})


class ConfigError(Exception):
    """The configuration cannot be used. `problems` has one line for each mistake, beginning with the key path."""

    def __init__(self, *problems: str) -> None:
        self.problems: tuple[str, ...] = problems
        super().__init__("\n".join(problems))


class EnvText(str):
    """Text from the environment. It has no type of its own; `origin` says where it came from."""

    origin: str

    def __new__(cls, text: str, origin: str) -> EnvText:
        self = super().__new__(cls, text)
        self.origin = origin
        return self

    def __reduce__(self) -> tuple[type[EnvText], tuple[str, str]]:  # a configuration is sent to the workers
        return EnvText, (str(self), self.origin)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What differs between one conversion and another.

    `shorthand`: a plain text given for this dataclass is its field of that name. `bases`: a section of this dataclass
    starts from this instance and overrides single keys of it, also inside its own sections. `found` takes the mistakes,
    and a stand-in is put in the place of each, so that what else is wrong can be looked for; None: they are raised.
    """

    shorthand: Mapping[type, str] = field(default_factory=dict)
    bases: Mapping[type, Any] = field(default_factory=dict)
    found: list[str] | None = None


PLAIN: Final = Rules()


def suggestion(word: str, known: Iterable[str], elsewhere: Mapping[str, str] = types.MappingProxyType({})) -> str:
    """The tail of a message about an unknown word: the nearest known one, or all of them. `elsewhere` are words that
    are known in other places, with how they are to be written."""
    names = sorted(known)
    near = difflib.get_close_matches(word, [*names, *elsewhere], n=1, cutoff=0.6)
    if near:
        return f", did you mean {elsewhere.get(near[0], near[0])!r}?"
    return f"; known: {', '.join(names)}" if names else ""


def join(path: str, key: str) -> str:
    """The path of `key` in the mapping at `path`."""
    return f"{path}.{key}" if path else key


@cache
def hints_of(kind: type) -> dict[str, Any]:
    """The resolved type hints of a dataclass."""
    return get_type_hints(kind)


def without_none(kind: Any) -> tuple[tuple[Any, ...], bool]:
    """The members of a union except None, and whether None was one. Any other type is its own only member."""
    if get_origin(kind) in (Union, types.UnionType):
        members = tuple(member for member in get_args(kind) if member is not type(None))
        return members, len(members) < len(get_args(kind))
    return (kind,), False


def is_mapping(kind: Any) -> bool:
    """Whether values of this type are mappings with free keys."""
    origin = get_origin(kind) or kind
    return isinstance(origin, type) and issubclass(origin, Mapping)


def is_sequence(kind: Any) -> bool:
    """Whether values of this type are lists in the file."""
    return (get_origin(kind) or kind) in (tuple, list, frozenset)


def options_of(kind: Any) -> tuple[Any, ...] | None:
    """The values that a `Literal` or an enumeration allows, as they stand in the file; None for other types."""
    if get_origin(kind) is Literal:
        return get_args(kind)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return tuple(member.value for member in kind)
    return None


def expectation(kind: Any) -> str:
    """The type in words, for messages and for the reference."""
    members, optional = without_none(kind)
    if len(members) > 1 or optional:
        return " or ".join([expectation(member) for member in members] + (["null"] if optional else []))
    options = options_of(kind)
    if options is not None:
        return "one of " + ", ".join(quote(option) for option in options)
    if is_sequence(kind):
        items = [arg for arg in get_args(kind) if arg is not Ellipsis]
        fixed = get_origin(kind) is tuple and Ellipsis not in get_args(kind)
        return f"a list of {f'{len(items)} × ' if fixed else ''}{expectation(items[0])}" if items else "a list"
    if is_mapping(kind) or dataclasses.is_dataclass(kind):
        return "a mapping"
    words = {int: "an integer", float: "a number", bool: "true or false", str: "text", Any: "any value"}
    return words[kind] if kind in words else f"a {getattr(kind, '__name__', kind)}"


def from_mapping(kind: type[T], mapping: object, path: str = "", rules: Rules = PLAIN) -> T:
    """An instance of the dataclass `kind` made from `mapping`; `path` is where the mapping stands, for messages.

    Raises `ConfigError` with every mistake found, unless `rules` wants them elsewhere.
    """
    try:
        return cast(T, _read(kind, mapping, path, rules))
    except ConfigError as error:
        if rules.found is None:
            raise
        rules.found.extend(error.problems)
        return cast(T, _stand_in(kind))


def to_mapping(value: Any) -> Any:
    """Plain lists, mappings and scalars that `from_mapping` reads back to the same value."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_mapping(getattr(value, f.name)) for f in dataclasses.fields(value) if f.init}
    if isinstance(value, Mapping):
        return {str(key): to_mapping(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [to_mapping(item) for item in value]
    if isinstance(value, frozenset):
        return sorted(to_mapping(item) for item in value)
    if isinstance(value, Enum):
        return value.value
    return str(value) if isinstance(value, EnvText) else value


def _wrong(kind: Any, value: Any, path: str) -> ConfigError:
    hidden = not SECRET_KEYS.isdisjoint(re.split(r"[.\[]", path))
    shown = "a value that is not shown here" if hidden else quote(to_mapping(value))
    return ConfigError(f"{path or 'the file'}: expected {expectation(kind)}, got {shown}{_source(value)}")


def _source(value: Any) -> str:
    """` (from NAME)` if the value, or the first text in it, came from the environment."""
    if isinstance(value, EnvText):
        return f" (from {value.origin})"
    if isinstance(value, Mapping):
        return next((source for source in map(_source, value.values()) if source), "")
    return ""


def _stand_in(kind: Any) -> Any:
    """Some value of the type: what a section has without any key, else nothing."""
    members, optional = without_none(kind)
    if optional or members[0] is Any:
        return None
    kind = members[0]
    if (options := options_of(kind)) is not None:
        return kind(options[0]) if isinstance(kind, type) else options[0]
    if dataclasses.is_dataclass(kind):
        missing = (
            f for f in dataclasses.fields(kind) if f.init and f.default is MISSING and f.default_factory is MISSING
        )
        return cast(type, kind)(**{f.name: _stand_in(hints_of(cast(type, kind))[f.name]) for f in missing})
    return {} if is_mapping(kind) else (get_origin(kind) or kind)()


def _report(problems: list[str], rules: Rules) -> None:
    if problems and rules.found is None:
        raise ConfigError(*problems)
    if rules.found is not None:
        rules.found.extend(problems)


def _read(kind: Any, value: Any, path: str, rules: Rules, base: Any = None) -> Any:
    if kind is Any:
        return value
    members, optional = without_none(kind)
    if optional and (value is None or (isinstance(value, EnvText) and value.strip() in _NULL)):
        return None
    if len(members) > 1:
        return _read_union(kind, members, value, path, rules)
    kind = members[0]
    if options_of(kind) is not None:
        return _read_option(kind, value, path)
    if kind is str:
        if isinstance(value, str):
            return str(value)
        raise _wrong(kind, value, path)
    if kind in (int, float, bool):
        return _read_scalar(kind, value, path)
    if dataclasses.is_dataclass(kind):
        return _read_dataclass(cast(type, kind), value, path, rules, base)
    if is_sequence(kind):
        return _read_sequence(kind, value, path, rules)
    if is_mapping(kind):
        return _read_mapping(kind, value, path, rules)
    raise TypeError(f"{path}: a configuration value cannot have the type {kind!r}")


def _read_union(kind: Any, members: tuple[Any, ...], value: Any, path: str, rules: Rules) -> Any:
    # Text is the last resort: everything from the environment is one.
    strict = dataclasses.replace(rules, found=None)
    for member in sorted(members, key=lambda member: member is str):
        try:
            return _read(member, value, path, strict)
        except ConfigError:
            continue
    raise _wrong(kind, value, path)


def _read_option(kind: Any, value: Any, path: str) -> Any:
    options = options_of(kind) or ()
    # `images: true` is a boolean in YAML and a word in the type.
    plain = ("true" if value else "false") if isinstance(value, bool) else value
    for option in options:
        matches = str(option) == plain if isinstance(value, EnvText | bool) else option == plain
        if matches and (type(option) is type(value) or isinstance(value, EnvText | bool)):
            return kind(option) if isinstance(kind, type) else option
    error = _wrong(kind, value, path)
    if isinstance(plain, str):
        near = difflib.get_close_matches(plain, [str(option) for option in options], n=1)
        if near:
            error = ConfigError(f"{error}, did you mean {near[0]!r}?")
    raise error


def _read_scalar(kind: type, value: Any, path: str) -> int | float | bool:
    plain = value
    if isinstance(value, EnvText):
        word = value.strip().lower()
        if kind is bool and word in _TRUE | _FALSE:
            return word in _TRUE
        plain = _parse(value, path)
    if kind is bool and isinstance(plain, bool):
        return plain
    if kind is int and isinstance(plain, int) and not isinstance(plain, bool):
        return plain
    if kind is float and isinstance(plain, int | float) and not isinstance(plain, bool) and math.isfinite(plain):
        return float(plain)
    raise _wrong(kind, value, path)


def _parse(value: EnvText, path: str) -> Any:
    try:
        return parse_yaml(value)
    except ValueError as error:
        raise ConfigError(f"{path}: not valid YAML{_source(value)}: {error}") from error


def _read_sequence(kind: Any, value: Any, path: str, rules: Rules) -> Any:
    plain = value
    if isinstance(value, EnvText):
        plain = _parse(value, path)
        # One lone value needs no brackets in a variable; as text it keeps its spelling.
        plain = [] if plain is None else plain if isinstance(plain, list) else [value]
    if not isinstance(plain, list | tuple):
        raise _wrong(kind, value, path)
    args = get_args(kind) or (Any,)
    if get_origin(kind) is tuple and Ellipsis not in args:
        if len(plain) != len(args):
            raise _wrong(kind, value, path)
        wanted = list(args)
    else:
        wanted = [args[0]] * len(plain)
    problems: list[str] = []
    items: list[Any] = []
    for index, (item_kind, item) in enumerate(zip(wanted, plain, strict=True)):
        try:
            items.append(_read(item_kind, item, f"{path}[{index}]", rules))
        except ConfigError as error:
            problems += error.problems
            items.append(_stand_in(item_kind))
    _report(problems, rules)
    return (get_origin(kind) or kind)(items)


def _as_mapping(kind: Any, value: Any, path: str, problems: list[str]) -> Mapping[str, Any]:
    """The mapping without keys that are no text, which are `problems`."""
    plain = _parse(value, path) if isinstance(value, EnvText) else value
    if plain is None:
        return {}
    if not isinstance(plain, Mapping):
        raise _wrong(kind, value, path)
    odd = [str(key) for key in plain if not isinstance(key, str)]
    problems += (f"{join(path, key)}: keys are text, write {key!r} in quotes" for key in odd)
    return {key: item for key, item in plain.items() if isinstance(key, str)} if odd else plain


def _read_mapping(kind: Any, value: Any, path: str, rules: Rules) -> dict[str, Any]:
    _, item_kind = get_args(kind) or (str, Any)
    problems: list[str] = []
    items: dict[str, Any] = {}
    for key, item in _as_mapping(kind, value, path, problems).items():
        try:
            items[key] = _read(item_kind, item, join(path, key), rules)
        except ConfigError as error:
            problems += error.problems
            items[key] = _stand_in(item_kind)
    _report(problems, rules)
    return items


def _read_dataclass(kind: type, value: Any, path: str, rules: Rules, base: Any) -> Any:
    base = rules.bases.get(kind) if base is None else base
    hints = hints_of(kind)
    short = rules.shorthand.get(kind)
    if short is not None and isinstance(value, str | int) and (hints[short] is bool or not isinstance(value, bool)):
        parsed = _parse(value, path) if isinstance(value, EnvText) else value
        value = value if isinstance(parsed, Mapping) else {short: value}
    known = {f.name: f for f in dataclasses.fields(kind) if f.init}
    problems: list[str] = []
    given: dict[str, Any] = {}
    mapping = _as_mapping(kind, value, path, problems)
    for key, item in mapping.items():
        where = join(path, key)
        if key not in known:
            problems.append(f"{where}: unknown key{suggestion(key, known, _inside(hints, known))}{_source(item)}")
        elif item is None and _is_section(hints[key]):
            continue  # a heading with nothing below it
        else:
            try:
                given[key] = _read(hints[key], item, where, rules, getattr(base, key, None))
            except ConfigError as error:
                problems += error.problems
    if base is None:
        for name, f in known.items():
            if name in given:
                continue
            if hints[name] in rules.bases:
                given[name] = rules.bases[hints[name]]
            elif f.default is MISSING and f.default_factory is MISSING:
                if name not in mapping:
                    problems.append(f"{join(path, name)}: required, {expectation(hints[name])}")
                given[name] = _stand_in(hints[name])
    _report(problems, rules)
    try:
        return kind(**given) if base is None else dataclasses.replace(base, **given)
    except (TypeError, ValueError) as error:  # a plug-in's own check in __post_init__
        raise ConfigError(f"{path}: {error}") from error


def _inside(hints: Mapping[str, Any], known: Iterable[str]) -> dict[str, str]:
    """The keys of the sections of a section, with their paths."""
    names = set(known)
    sections = {name: hints[name] for name in sorted(names) if dataclasses.is_dataclass(hints[name])}
    return {
        f.name: f"{section}.{f.name}"
        for section, kind in sections.items()
        for f in dataclasses.fields(kind)
        if f.name not in names
    }


def _is_section(kind: Any) -> bool:
    return dataclasses.is_dataclass(kind) or is_mapping(kind) or is_sequence(kind)
