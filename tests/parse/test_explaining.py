"""Answers that explain calls (R30.3): no call, no near miss, and the text byte for byte, whatever the route teaches and
however the stream is cut."""

from __future__ import annotations

from itertools import cycle
from types import ModuleType

from tests.cases import every
from tests.corpus.explaining import PLAIN, TOOLS, with_markers
from tests.parse.reading import WHOLE, calls_and_text, in_pieces
from toolwire.call_policy.near import NearMiss, stand
from toolwire.call_policy.policy import CallPolicy
from toolwire.config import LimitsConfig, RouteOptions
from toolwire.formats.base import ToolFormat
from toolwire.formats.recognised.recognition import FAMILIES, recognising
from toolwire.model import ToolChoice
from toolwire.registry import registries
from toolwire.scanner import build_scanner

TAUGHT = ("sentinel", "hermes", "qwen3_coder", "mistral", "bare_json", "pythonic")


def read(twin: ModuleType, taught: str, text: str, size: int) -> tuple[int, str, list[NearMiss]]:
    """How many calls an answer holds, its text, and the near misses that count."""
    near: list[NearMiss] = []
    options = RouteOptions()
    grammar = recognising(registries().formats.get(taught).grammar, "any")
    policy = CallPolicy(
        TOOLS, choice=ToolChoice(), parallel=True, options=options, limits=LimitsConfig(), near=near.append
    )
    scanner = build_scanner(grammar, policy, options, LimitsConfig(), scanner=twin.CallScanner)
    events = [event for piece in in_pieces(text, size) for event in scanner.feed(piece)]
    calls, visible = calls_and_text([*events, *scanner.finish()])
    return len(calls), visible, near if near and stand(near, visible) else []


@every("taught", TAUGHT)
def test_without_markers(twin: ModuleType, taught: str) -> None:
    for number, text in enumerate(PLAIN):
        size = (7, WHOLE)[(number + TAUGHT.index(taught)) % 2]
        assert read(twin, taught, text, size) == (0, text, []), (text, size)


@every("family", FAMILIES)
def test_with_the_markers_of_a_family(twin: ModuleType, family: ToolFormat) -> None:
    for text, taught in zip(with_markers(family), cycle(("sentinel", "hermes", "hermes", "sentinel"))):
        calls, _, near = read(twin, taught, text, WHOLE)
        assert (calls, near) == (0, []), (text, taught)
