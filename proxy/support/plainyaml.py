"""Reads YAML 1.2 scalars: only `true` and `false` are booleans, there are no dates, and duplicate keys are errors.

PyYAML follows YAML 1.1, where `off`, `no` and `on` are booleans, `1:30` is ninety and `010` is eight. Here these are
texts, so `repair: off` needs no quotes. Underscores in integers stay allowed (`32_000_000`).
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import Any, Final

import yaml

MOST_ALIASED: Final = 20_000
"""Maximum number of values that all aliases of a document may expand to."""
SCALAR_CHARS: Final = 64
"""A text counts as one more value for every this many characters."""


class PlainLoader(yaml.SafeLoader):
    """`yaml.SafeLoader` with the scalars of YAML 1.2. Collects duplicate keys in `repeated`."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012  # PyYAML's own name

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.repeated: set[tuple[int, str]] = set()
        self._size = 0
        self._aliased = 0
        self._sizes: dict[int, int] = {}

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Returns the next node. Raises `yaml.MarkedYAMLError` if the aliases expand to too many values: a few lines of
        nested aliases can stand for millions."""
        event = self.peek_event()  # type: ignore[no-untyped-call]
        before = self._size
        node = super().compose_node(parent, index)
        if not isinstance(event, yaml.AliasEvent):
            self._size += 1 + (len(node.value) // SCALAR_CHARS if isinstance(node, yaml.ScalarNode) else 0)
            self._sizes[id(node)] = self._size - before
            return node
        size = self._sizes.get(id(node), 1)  # an anchor that contains itself has no size yet
        self._size += size
        self._aliased += size
        if self._aliased > MOST_ALIASED:
            problem = f"the aliases up to here stand for more than {MOST_ALIASED} values; write out less by aliases"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=event.start_mark)  # type: ignore[arg-type]
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Returns a mapping. The last value of a duplicate key counts."""
        seen: set[tuple[str, str]] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if (key.tag, key.value) in seen:
                    message = f"{_at(key.start_mark)}key {key.value!r} occurs twice"
                    self.repeated.add((key.start_mark.index, message))
                seen.add((key.tag, key.value))
        return super().construct_mapping(node, deep)

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        """Returns an integer. Raises `yaml.MarkedYAMLError` for one with thousands of digits."""
        try:
            return int(super().construct_yaml_int(node))
        except ValueError as error:
            problem = "a whole number that has too many digits"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark) from error


PlainLoader.add_constructor("tag:yaml.org,2002:int", PlainLoader.construct_yaml_int)

for _tag, _pattern, _first in (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?(0|[1-9][0-9_]*)|0x[0-9a-fA-F]+", "-+0123456789"),
    ("float", r"[-+]?([0-9][0-9_]*\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))([eE][-+]?[0-9]+)?", "-+0123456789."),
    ("merge", r"<<", "<"),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
):
    PlainLoader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(rf"(?:{_pattern})\Z"), list(_first))


def parse_yaml(text: str) -> Any:
    """Returns the value of one YAML document. Raises `ValueError` that says what is wrong and where, also for duplicate
    keys."""
    value, repeated = read_yaml(text)
    if repeated:
        raise ValueError("; ".join(repeated))
    return value


def read_yaml(text: str) -> tuple[Any, list[str]]:
    """Returns the value of one YAML document, and a message for each duplicate key. Raises `ValueError` for invalid
    YAML."""
    try:
        loader = PlainLoader(text)
    except yaml.reader.ReaderError as error:
        line, column = text.count("\n", 0, error.position) + 1, error.position - text.rfind("\n", 0, error.position)
        raise ValueError(f"line {line}, column {column}: a control character, which YAML does not allow") from error
    try:
        return loader.get_single_data(), [message for _, message in sorted(loader.repeated)]
    except yaml.MarkedYAMLError as error:
        said = ", ".join(part for part in (error.context, error.problem) if part)
        raise ValueError(f"{_at(error.problem_mark or error.context_mark)}{said}") from error
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error
    finally:
        loader.dispose()


def _at(mark: yaml.Mark | None) -> str:
    return f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
