"""No regular expression takes more than linear time, whatever the text (R33.3): counted in steps, not in seconds."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from tests.cases import every

from .hostile import families
from .inventory import ANCHORED, held, sites
from .steps import Steps, TooManySteps, has_loop

FIRST: Final = 80
"""Characters of the shortest text of a family: with 40 the long words of some patterns hide that they are steep."""
LONGEST: Final = 1536
"""Of the longest."""
STEEP: Final = 2.4
"""Twice the text may take so many times the steps. Square growth takes four times."""
SLACK: Final = 60
STEPS: Final = 200_000
"""More than any linear pattern needs for the longest text."""

BOUNDED: Final[Mapping[str, str]] = {
    "toolwire.formats.model_families:_PATTERNS": "256 characters of a model's name: `format_for`",
    "toolwire.startup.ineffective:_covers": "names of models in the operator's configuration",
    "toolwire.support.patterns:_CLASS": "patterns of the operator's configuration",
    "toolwire.extras.tune.printed": "`MAX_CHARS`, 8,000 characters of an answer, in `toolwire tune`",
    "toolwire.extras.tune.reading": "the same",
    "toolwire.extras.bench.naive": "parsers that are measured beside the scanner, in `toolwire bench`",
}
"""Not linear, but only ever given texts of bounded length: which, and where that is enforced. By module and name, or by
module."""

WHOLE: Final[Mapping[str, str]] = {
    "toolwire.support.plainyaml:PlainLoader.yaml_implicit_resolvers": "PyYAML calls `match` on a whole scalar",
}
"""Patterns that others use, at one place of a text only."""


MADE: Final[Mapping[str, str]] = {
    "toolwire.upstream.servers.private_data:PrivateData.hide": "one escaped word between edges",
    "toolwire.upstream.servers.private_data:PrivateData.hide_hosts": "one escaped host, a port and a path",
    "toolwire.call_policy.json_calls:_head": "a row of escaped tokens",
    "toolwire.extras.bench.naive:RescanningScanner.__init__": "measured only",
    "toolwire.formats.engine.markers:MarkerSet._pattern": "a tree of escaped characters",
    "toolwire.formats.engine.markers:CallBeginnings.__init__": "escaped words",
    "toolwire.extras.inspector.prompt:_Ours.__init__": "escaped names",
    "toolwire.pipeline.sending.delivery:boundary": "paths that the code names, matched as a whole",
    "toolwire.pipeline.scanning.preopened:closes_thoughts": "escaped words",
    "toolwire.prompting.transcript:split_at": "escaped words, over slices",
    "toolwire.repair.literals:_to_quote": "held by the module",
    "toolwire.repair.relaxed_json:_run_of": "held by the module",
    "toolwire.scan._plan:quoted_calls": "escaped literals around a name of at most 128 bytes",
    "toolwire.scanner:signs_of": "escaped words",
    "toolwire.support.plainyaml:": "held by `PlainLoader`",
    "toolwire.extras.tune.matching:_matches": "a pattern of the operator's own cases, in `toolwire tune`",
    "toolwire.extras.tune.matching:_pattern": "the same",
}
"""Patterns that are made inside of functions, and of what."""


def _patterns() -> dict[tuple[re.Pattern[Any], bool], str]:
    """Every pattern that is known, whether it is only tried at one place, and who has it."""
    found: dict[tuple[re.Pattern[Any], bool], str] = {}
    for one in held():
        anchored = one.anchored or one.key in WHOLE
        for pattern in one.patterns:
            found.setdefault((pattern, anchored), one.key)
    for site in sites():
        if site.in_function and site.literal is not None:
            found.setdefault((site.literal, site.method in ANCHORED), site.key)
    return {key: who for key, who in found.items() if who not in BOUNDED and who.partition(":")[0] not in BOUNDED}


def steps_of(counted: Steps, anchored: bool, text: str | bytes) -> int:
    """The steps of looking for every match; `anchored`: of one match at the beginning."""
    counted.steps = 0
    try:
        if anchored:
            counted.match(text)
        else:
            counted.find_all(text)
    except TooManySteps:
        return STEPS
    return counted.steps


def steep(pattern: re.Pattern[Any], anchored: bool = False) -> str | None:
    """A family of texts on which the steps grow faster than the text, or None."""
    counted = Steps(pattern, clip=True, budget=STEPS)  # which takes long for a large pattern
    for begin, unit, end in families(pattern):
        times = max(1, FIRST // len(unit))
        before = steps_of(counted, anchored, begin + unit * times + end)
        while True:
            times *= 2
            text = begin + unit * times + end
            steps = steps_of(counted, anchored, text)
            if steps >= STEPS or (steps > STEEP * before + SLACK and len(text) > LONGEST):
                return f"{begin!r} + {unit!r} * {times} + {end!r}: {before} steps for half of it, {steps} for all"
            if steps <= STEEP * before + SLACK and len(text) > FIRST:
                break  # twice the text, twice the steps
            before = steps
    return None


def test_no_pattern_is_more_than_linear() -> None:
    found = {
        f"{who}: {pattern.pattern!r}": said
        for (pattern, anchored), who in _patterns().items()
        if has_loop(pattern) and (said := steep(pattern, anchored)) is not None
    }
    assert not found


def test_every_pattern_is_known() -> None:
    """A new call of `re` has to be at the level of a module, have a literal, or stand in `MADE`."""
    names = {one.key for one in held()}
    unknown = {
        f"{site.key} (line {site.line})"
        for site in sites()
        if site.key not in MADE and (site.literal is None if site.in_function else site.key not in names)
    }
    assert not unknown
    assert MADE.keys() <= {site.key for site in sites()}


def test_exceptions_are_needed() -> None:
    """What is allowed to be steep is there."""
    names = {one.key for one in held()} | {site.key for site in sites()}
    assert {who for who in BOUNDED if ":" in who} <= names
    assert {who for who in BOUNDED if ":" not in who} <= {name.partition(":")[0] for name in names}
    assert WHOLE.keys() <= names


@every(
    "pattern",
    [
        re.compile(rb"eyJ[A-Za-z0-9_\-]{10,}\.[A-Za-z0-9_\-]{10,}\.[A-Za-z0-9_\-]+"),  # no end of a run of letters
        re.compile(r"a.*b", re.DOTALL),
        re.compile(r'"(?:[^"\\]++|\\.)*+"', re.DOTALL),  # strings without an end
        re.compile(r"\[[0-9a-f:]*:[0-9a-f:.]*\]"),
        re.compile(r"(?:a|a)*c"),  # twice the ways for each letter
        re.compile(r"\s+$"),
        re.compile(r"<\|tool_call_begin\|>functions\.(.*?):\d+<\|tool_call_argument_begin\|>(.*?)<\|tool_call_end\|>", re.DOTALL),
    ],
)  # fmt: skip
def test_the_law_sees_what_is_steep(pattern: re.Pattern[Any]) -> None:
    assert has_loop(pattern)
    assert steep(pattern) is not None


@every("pattern", [re.compile(r"(?:a|b)++"), re.compile(r"[^\W\d]\w*"), re.compile(rb"\n\n|\r\r")])
def test_the_law_lets_linear_ones_pass(pattern: re.Pattern[Any]) -> None:
    assert steep(pattern) is None


@every(
    "pattern",
    [
        re.compile(r"(a|ab)(c|bcd)?(?:x*?|\1)y{2,3}+"),
        re.compile(r"(?i)(?<![a-z])foo(?=\d|$)|\bbar\B"),
        re.compile(r"^\s*(?P<q>['\"])(?:(?!(?P=q)).)*+(?P=q)", re.M),
        re.compile(rb"[^\x00-\x1f]+?\w|\W{2}"),
        re.compile(r"(?:(?>a+)b|c)*d?"),
    ],
)
def test_the_counting_matcher_matches_as_re_does(pattern: re.Pattern[Any]) -> None:
    for begin, unit, end in families(pattern):
        text = begin + unit * 3 + end
        given = text.encode("latin-1") if isinstance(pattern.pattern, bytes) else text
        mine = [place for place in Steps(pattern).find_all(given) if place[0] < place[1]]
        assert mine == [found.span() for found in pattern.finditer(given) if found.end() > found.start()]
