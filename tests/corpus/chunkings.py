"""Ways to cut a text into deltas, as servers do and worse."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from random import Random

Pieces = Sequence[str] | Sequence[bytes]


def by_size(size: int) -> Callable[[str], Pieces]:
    def cut(text: str) -> Pieces:
        data = text.encode()
        return [data[at : at + size] for at in range(0, len(data), size)]

    return cut


_TOKEN = re.compile(r"(?: ?[^\W_]{1,7}|(.)\1?)", re.DOTALL)


@lru_cache(maxsize=1 << 12)
def tokens(text: str) -> Pieces:
    """Like a tokenizer's: a word with the space before it, at most eight characters; everything else by one or two."""
    return tuple(match[0] for match in _TOKEN.finditer(text))


def inside_characters(text: str) -> Pieces:
    """Cut in the middle of every character that has a middle."""
    data = text.encode()
    places = [at for at in range(1, len(data)) if data[at] & 0xC0 == 0x80]
    return [data[a:b] for a, b in pairwise([0, *places, len(data)])]


def random_bytes(seed: int) -> Callable[[str], Pieces]:
    def cut(text: str) -> Pieces:
        data = text.encode()
        random = Random(f"{seed}/{len(data)}")
        places = sorted(random.sample(range(len(data) + 1), min(len(data), random.randint(1, 1 + len(data) // 5))))
        return [data[a:b] for a, b in pairwise([0, *places, len(data)])]

    return cut


CHUNKINGS: Mapping[str, Callable[[str], Pieces]] = {
    "whole": lambda text: [text],
    "bytes": by_size(1),
    "tokens": tokens,
    "inside characters": inside_characters,
    "random": random_bytes(0),
}
