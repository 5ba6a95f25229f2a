"""Texts that make a regular expression work, from its own tree: its beginnings repeated, near misses, pumped loops."""

from __future__ import annotations

import re
from collections.abc import Iterator
from random import Random
from re import _constants as sre
from re import _parser as parser
from typing import Any, Final, TypeVar

T = TypeVar("T")

DERIVED: Final = 10
"""Matching texts that are derived from one tree."""
TEXTS: Final = 80
"""Families of one pattern that are tried at most."""
EACH: Final = 16
"""Of each kind."""
SEED: Final = 33
LONGEST: Final = 48
"""Characters of a beginning or a unit."""
OUTSIDE: Final = ("\x00", "\n", "!", "\ue123")
"""Characters that few patterns want: they end what has begun."""


def families(pattern: re.Pattern[Any]) -> Iterator[tuple[str, str, str]]:
    """Beginning, unit and end of texts `beginning + unit * n + end`."""
    rng = Random(SEED)
    is_bytes = isinstance(pattern.pattern, bytes)
    tree = parser.parse(pattern.pattern, pattern.flags & ~(re.UNICODE if is_bytes else 0))
    derived = list(dict.fromkeys(_derive(list(tree), rng, {}, size) for size in range(DERIVED) for _ in range(2)))
    letters = list(dict.fromkeys("".join(derived)))
    ends = ("", *(c for c in OUTSIDE if not is_bytes or ord(c) < 256))
    begins = list(dict.fromkeys(text[:cut] for text in derived for cut in range(1, min(len(text), LONGEST) + 1)))
    found = dict.fromkeys(("", letter, "\x00") for letter in _some(letters, rng))
    found |= dict.fromkeys(("", begin, "") for begin in _some(begins, rng))
    found |= dict.fromkeys(("", a + b, "") for a, b in _some([(a, b) for a in letters for b in letters], rng))
    short = [(begin, letter, "\x00") for begin in begins if len(begin) < 4 for letter in letters]
    found |= dict.fromkeys(_some(short, rng))
    for _ in range(8 * TEXTS if letters else 0):  # a beginning, and a piece or a letter that may be what a loop takes
        if len(found) >= TEXTS:
            break
        begun, other = rng.choice(derived), rng.choice(derived)
        begin = begun[: rng.randint(0, min(len(begun), LONGEST))]
        start = rng.randint(0, max(0, len(other) - 1))
        unit = rng.choice(
            (other[start : start + rng.randint(1, LONGEST)], rng.choice(letters), rng.choice(letters) * 2)
        )
        if unit:
            found[begin, unit, rng.choice(ends)] = None
    yield from found


def _some(values: list[T], rng: Random) -> list[T]:
    return values if len(values) <= EACH else rng.sample(values, EACH)


def _derive(nodes: list[Any], rng: Random, groups: dict[int, str], size: int) -> str:
    """A text that the nodes match, as far as edges and assertions let it."""
    return "".join(_of(op, given, rng, groups, size) for op, given in nodes)


def _of(op: Any, given: Any, rng: Random, groups: dict[int, str], size: int) -> str:
    if op is sre.LITERAL:
        return chr(given)
    if op is sre.NOT_LITERAL:
        return "a" if given != ord("a") else "b"
    if op is sre.ANY:
        return rng.choice("a\n ")
    if op is sre.IN:
        return _one_of(given, rng)
    if op is sre.BRANCH:
        return _derive(list(rng.choice(given[1])), rng, groups, size)
    if op is sre.SUBPATTERN:
        text = _derive(list(given[3]), rng, groups, size)
        if given[0] is not None:
            groups[given[0]] = text
        return text
    if op in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
        low, high, inner = given
        most = min(low + rng.randint(0, 2), high) if high is not sre.MAXREPEAT else low + rng.randint(0, 2)
        return "".join(_derive(list(inner), rng, groups, size) for _ in range(min(most, 12)))
    if op is sre.ATOMIC_GROUP:
        return _derive(list(given), rng, groups, size)
    if op is sre.ASSERT and given[0] > 0:
        return _derive(list(given[1]), rng, groups, size)
    if op is sre.GROUPREF:
        return groups.get(given, "")
    return ""


def _one_of(items: list[Any], rng: Random) -> str:
    if items[0][0] is sre.NEGATE:
        pattern = re.compile(f"[{''.join(_spelled(op, given) for op, given in items[1:])}]", re.DOTALL)
        fitting = [c for c in "a0 \n<{\"'\\x`=:" if not pattern.match(c)]
        return rng.choice(fitting or ["\x01"])
    op, given = rng.choice(items)
    if op is sre.LITERAL:
        return chr(given)
    if op is sre.RANGE:
        return chr(rng.choice((given[0], given[1])))
    name = str(given).removeprefix("CATEGORY_")
    return rng.choice(
        {"DIGIT": "07", "SPACE": " \n", "WORD": "a0_", "NOT_WORD": ".-", "NOT_DIGIT": "a", "NOT_SPACE": "a"}[name]
    )


def _spelled(op: Any, given: Any) -> str:
    if op is sre.LITERAL:
        return re.escape(chr(given))
    if op is sre.RANGE:
        return f"{re.escape(chr(given[0]))}-{re.escape(chr(given[1]))}"
    name = str(given).removeprefix("CATEGORY_")
    letter = name.removeprefix("NOT_")[0].lower()
    return "\\" + (letter.upper() if name.startswith("NOT_") else letter)
