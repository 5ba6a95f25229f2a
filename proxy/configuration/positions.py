"""Finds the line of the configuration file that a mistake is about."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import yaml

from ..support.conversion import join
from ..support.plainyaml import PlainLoader
from .mistakes import above


def with_lines(mistakes: Iterable[str], text: str) -> list[str]:
    """Returns the mistakes with their line numbers in the file `text`. A mistake stays unchanged if the file does not
    contain its key, because the value is missing or came from elsewhere."""
    lines = _lines_of(text)

    def placed(mistake: str) -> str:
        path = mistake.partition(": ")[0]
        while path and path not in lines:
            path = above(path)
        return f"{mistake} (line {lines[path]})" if path and "(from " not in mistake else mistake

    return [placed(mistake) for mistake in mistakes]


def _lines_of(text: str) -> dict[str, int]:
    """Returns the line of each key path of a file; empty if the file is not YAML."""
    try:
        root = yaml.compose(text, PlainLoader)
        return {} if root is None else dict(_walk(root, "", ()))
    except (yaml.YAMLError, RecursionError):
        return {}


def _walk(node: yaml.Node, path: str, above: tuple[yaml.Node, ...]) -> Iterator[tuple[str, int]]:
    if node in above:  # an anchor that contains itself
        return
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                below = join(path, key.value)
                yield below, key.start_mark.line + 1
                yield from _walk(value, below, (*above, node))
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield f"{path}[{index}]", item.start_mark.line + 1
            yield from _walk(item, f"{path}[{index}]", (*above, node))
