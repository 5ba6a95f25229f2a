"""Builds frozen dataclasses from plain mappings and back, driven by their type hints. Independent of any particular
configuration.

Rules of this module:

1. The type hints are the only description. Supported are dataclasses, `int`, `float`, `bool`, `str`, `Any`, `Literal`,
   enumerations, unions with or without `None`, `tuple`, `list`, `frozenset` and mappings with text keys.
2. All mistakes are reported, not only the first, each with its key path (`routes[0].options.format`), the value and the
   expected type. A value below a secret key is never shown.
3. A `bool` is not accepted as `int`, nor text as a number. The exception is `EnvText`: environment variables are always
   text, so it is parsed as the expected type.
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

from ..errors import quote
from .plainyaml import parse_yaml

T = TypeVar("T")

SECRET_KEYS: Final = frozenset({"api_key", "env", "headers", "keys", "password", "secret", "token"})
"""Values below these keys are never quoted in a message."""

_TRUE: Final = frozenset({"true", "1", "yes", "on"})
_FALSE: Final = frozenset({"false", "0", "no", "off"})
_NULL: Final = frozenset({"", "null", "~"})


class ConfigError(Exception):
    """The configuration is invalid. `problems` has one line for each mistake, beginning with its key path."""

    def __init__(self, *problems: str) -> None:
        self.problems: tuple[str, ...] = problems
        super().__init__("\n".join(problems))


class EnvText(str):
    """Text from an environment variable, whose type is not known yet. `origin` names the variable, for messages."""

    origin: str

    def __new__(cls, text: str, origin: str) -> EnvText:
        self = super().__new__(cls, text)
        self.origin = origin
        return self

    def __reduce__(self) -> tuple[type[EnvText], tuple[str, str]]:  # configurations are pickled for the workers
        return EnvText, (str(self), self.origin)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversionRules:
    """Options of one conversion.

    `shorthand`: for each dataclass the field that a plain text or number stands for. `bases`: for each dataclass the
    instance whose values are defaults for a section, also for the sections inside it. `found`: a list that collects the
    mistakes, while a placeholder replaces each bad value so that the rest can be checked; None: mistakes are raised.
    """

    shorthand: Mapping[type, str] = field(default_factory=dict)
    bases: Mapping[type, Any] = field(default_factory=dict)
    found: list[str] | None = None


PLAIN: Final = ConversionRules()


def suggestion(word: str, known: Iterable[str], elsewhere: Mapping[str, str] = types.MappingProxyType({})) -> str:
    """Returns the end of a message about an unknown `word`: the most similar known word, or the list of all.
    `elsewhere` maps words that are valid in other places to how they are written there."""
    names = sorted(known)
    near = difflib.get_close_matches(word, [*names, *elsewhere], n=1, cutoff=0.6)
    if near:
        return f", did you mean {elsewhere.get(near[0], near[0])!r}?"
    return f"; known: {', '.join(names)}" if names else ""


def join(path: str, key: str) -> str:
    """Returns the path of `key` in the mapping at `path`."""
    return f"{path}.{key}" if path else key


@cache
def hints_of(kind: type) -> dict[str, Any]:
    """Returns the resolved type hints of a dataclass."""
    return get_type_hints(kind)


def without_none(kind: Any) -> tuple[tuple[Any, ...], bool]:
    """Returns the members of a union without None, and whether None was one of them. A type that is no union is its own
    only member."""
    if get_origin(kind) in (Union, types.UnionType):
        members = tuple(member for member in get_args(kind) if member is not type(None))
        return members, len(members) < len(get_args(kind))
    return (kind,), False


def is_mapping(kind: Any) -> bool:
    """True if values of this type are mappings with arbitrary keys."""
    origin = get_origin(kind) or kind
    return isinstance(origin, type) and issubclass(origin, Mapping)


def is_sequence(kind: Any) -> bool:
    """True if values of this type are written as lists."""
    return (get_origin(kind) or kind) in (tuple, list, frozenset)


def options_of(kind: Any) -> tuple[Any, ...] | None:
    """Returns the values that a `Literal` or an enumeration allows, as they are written in the file; None for other
    types."""
    if get_origin(kind) is Literal:
        return get_args(kind)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return tuple(member.value for member in kind)
    return None


def expectation(kind: Any) -> str:
    """Describes the type in words, for messages and for the reference."""
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


def from_mapping(kind: type[T], mapping: object, path: str = "", rules: ConversionRules = PLAIN) -> T:
    """Returns an instance of the dataclass `kind` made from `mapping`. `path` is the mapping's key path, for messages.

    Raises `ConfigError` with all mistakes, unless `rules.found` collects them.
    """
    try:
        return cast(T, _read(kind, mapping, path, rules))
    except ConfigError as error:
        if rules.found is None:
            raise
        rules.found.extend(error.problems)
        return cast(T, _placeholder(kind))


def to_mapping(value: Any) -> Any:
    """Converts a value to plain lists, mappings and scalars that `from_mapping` reads back to the same value."""
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


def _type_mismatch(kind: Any, value: Any, path: str) -> ConfigError:
    hidden = not SECRET_KEYS.isdisjoint(re.split(r"[.\[]", path))
    shown = "a value that is not shown here" if hidden else quote(to_mapping(value))
    return ConfigError(f"{path or 'the file'}: expected {expectation(kind)}, got {shown}{_source(value)}")


def _source(value: Any) -> str:
    """Returns ` (from NAME)` if the value, or the first text in it, came from the environment variable NAME; else an
    empty text."""
    if isinstance(value, EnvText):
        return f" (from {value.origin})"
    if isinstance(value, Mapping):
        return next((source for source in map(_source, value.values()) if source), "")
    return ""


def _placeholder(kind: Any) -> Any:
    """Returns any value of the type: a section with its defaults, an empty container, zero or an empty text."""
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
        return cast(type, kind)(**{f.name: _placeholder(hints_of(cast(type, kind))[f.name]) for f in missing})
    return {} if is_mapping(kind) else (get_origin(kind) or kind)()


def _report(problems: list[str], rules: ConversionRules) -> None:
    if problems and rules.found is None:
        raise ConfigError(*problems)
    if rules.found is not None:
        rules.found.extend(problems)


def _read(kind: Any, value: Any, path: str, rules: ConversionRules, base: Any = None) -> Any:
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
        if not isinstance(value, str):
            raise _type_mismatch(kind, value, path)
        try:
            value.encode()
        except UnicodeEncodeError as error:  # bytes of a variable that are not UTF-8, or half a surrogate pair
            raise ConfigError(f"{path}: not valid UTF-8 at character {error.start}{_source(value)}") from None
        return str(value)
    if kind in (int, float, bool):
        return _read_scalar(kind, value, path)
    if dataclasses.is_dataclass(kind):
        return _read_dataclass(cast(type, kind), value, path, rules, base)
    if is_sequence(kind):
        return _read_sequence(kind, value, path, rules)
    if is_mapping(kind):
        return _read_mapping(kind, value, path, rules)
    raise TypeError(f"{path}: a configuration value cannot have the type {kind!r}")


def _read_union(kind: Any, members: tuple[Any, ...], value: Any, path: str, rules: ConversionRules) -> Any:
    # `str` is tried last, because it accepts everything from the environment.
    strict = dataclasses.replace(rules, found=None)
    for member in sorted(members, key=lambda member: member is str):
        try:
            return _read(member, value, path, strict)
        except ConfigError:
            continue
    raise _type_mismatch(kind, value, path)


def _read_option(kind: Any, value: Any, path: str) -> Any:
    options = options_of(kind) or ()
    # YAML reads `images: true` as a boolean; the type has the word "true".
    plain = ("true" if value else "false") if isinstance(value, bool) else value
    for option in options:
        matches = str(option) == plain if isinstance(value, EnvText | bool) else option == plain
        if matches and (type(option) is type(value) or isinstance(value, EnvText | bool)):
            return kind(option) if isinstance(kind, type) else option
    error = _type_mismatch(kind, value, path)
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
    raise _type_mismatch(kind, value, path)


def _parse(value: EnvText, path: str) -> Any:
    try:
        return parse_yaml(value)
    except ValueError as error:
        raise ConfigError(f"{path}: not valid YAML{_source(value)}: {error}") from error


def _read_sequence(kind: Any, value: Any, path: str, rules: ConversionRules) -> Any:
    plain = value
    if isinstance(value, EnvText):
        plain = _parse(value, path)
        # In a variable a single value needs no brackets; as text it keeps its spelling.
        plain = [] if plain is None else plain if isinstance(plain, list) else [value]
    if not isinstance(plain, list | tuple):
        raise _type_mismatch(kind, value, path)
    args = get_args(kind) or (Any,)
    if get_origin(kind) is tuple and Ellipsis not in args:
        if len(plain) != len(args):
            raise _type_mismatch(kind, value, path)
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
            items.append(_placeholder(item_kind))
    _report(problems, rules)
    return (get_origin(kind) or kind)(items)


def _as_mapping(kind: Any, value: Any, path: str, problems: list[str]) -> Mapping[str, Any]:
    """Returns the mapping without keys that are not text; adds a message about each of those to `problems`."""
    plain = _parse(value, path) if isinstance(value, EnvText) else value
    if plain is None:
        return {}
    if not isinstance(plain, Mapping):
        raise _type_mismatch(kind, value, path)
    odd = [str(key) for key in plain if not isinstance(key, str)]
    problems += (f"{join(path, key)}: keys are text, write {key!r} in quotes" for key in odd)
    return {key: item for key, item in plain.items() if isinstance(key, str)} if odd else plain


def _read_mapping(kind: Any, value: Any, path: str, rules: ConversionRules) -> dict[str, Any]:
    _, item_kind = get_args(kind) or (str, Any)
    problems: list[str] = []
    items: dict[str, Any] = {}
    for key, item in _as_mapping(kind, value, path, problems).items():
        try:
            items[key] = _read(item_kind, item, join(path, key), rules)
        except ConfigError as error:
            problems += error.problems
            items[key] = _placeholder(item_kind)
    _report(problems, rules)
    return items


def _read_dataclass(kind: type, value: Any, path: str, rules: ConversionRules, base: Any) -> Any:
    base = rules.bases.get(kind) if base is None else base
    hints = hints_of(kind)
    short = rules.shorthand.get(kind)
    if short is not None and isinstance(value, str | int) and (hints[short] is bool or not isinstance(value, bool)):
        parsed = _parse(value, path) if isinstance(value, EnvText) else value
        value = value if isinstance(parsed, Mapping) else {short: value}
    known = {f.name: f for f in dataclasses.fields(kind) if f.init}
    problems: list[str] = []
    values: dict[str, Any] = {}
    mapping = _as_mapping(kind, value, path, problems)
    for key, item in mapping.items():
        where = join(path, key)
        if key not in known:
            problems.append(f"{where}: unknown key{suggestion(key, known, _inside(hints, known))}{_source(item)}")
        elif item is None and _is_section(hints[key]):
            continue  # the key of a section, with nothing below it
        else:
            try:
                values[key] = _read(hints[key], item, where, rules, getattr(base, key, None))
            except ConfigError as error:
                problems += error.problems
    if base is None:
        for name, f in known.items():
            if name in values:
                continue
            if hints[name] in rules.bases:
                values[name] = rules.bases[hints[name]]
            elif f.default is MISSING and f.default_factory is MISSING:
                if name not in mapping:
                    problems.append(f"{join(path, name)}: required, {expectation(hints[name])}")
                values[name] = _placeholder(hints[name])
    _report(problems, rules)
    try:
        return kind(**values) if base is None else dataclasses.replace(base, **values)
    except (TypeError, ValueError) as error:  # a plug-in's own check in __post_init__
        raise ConfigError(f"{path}: {error}") from error


def _inside(hints: Mapping[str, Any], known: Iterable[str]) -> dict[str, str]:
    """Returns the keys of the sections within a section, with their paths."""
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
