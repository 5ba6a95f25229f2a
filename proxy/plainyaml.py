"""YAML as people mean it: only `true` and `false` are booleans, nothing turns into a date, no key occurs twice.

PyYAML follows YAML 1.1, where `off`, `no` and `on` are booleans, `1:30` is ninety and `010` is eight. Those are texts
here, as in YAML 1.2, so `repair: off` needs no quotes. Underscores in integers stay allowed (`32_000_000`).
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import Any

import yaml


class PlainLoader(yaml.SafeLoader):
    """`yaml.SafeLoader` with the scalars of YAML 1.2 and an error for a repeated key."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012  # PyYAML's own name

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """A mapping. Raises `yaml.MarkedYAMLError` with the line of a key that occurs twice."""
        seen: set[tuple[str, str]] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if (key.tag, key.value) in seen:
                    raise yaml.MarkedYAMLError(problem=f"key {key.value!r} occurs twice", problem_mark=key.start_mark)
                seen.add((key.tag, key.value))
        return super().construct_mapping(node, deep)


for _tag, _pattern, _first in (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?(0|[1-9][0-9_]*)|0x[0-9a-fA-F]+", "-+0123456789"),
    ("float", r"[-+]?([0-9][0-9_]*\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))([eE][-+]?[0-9]+)?", "-+0123456789."),
    ("merge", r"<<", "<"),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
):
    PlainLoader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(rf"(?:{_pattern})\Z"), list(_first))


def parse_yaml(text: str) -> Any:
    """The value of one YAML document. Raises `ValueError` that says what is wrong and where."""
    try:
        return yaml.load(text, Loader=PlainLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise ValueError(f"{where}{error.problem or error.context}") from error
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(str(error) or "nested too deeply") from error
