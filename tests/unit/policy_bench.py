"""A call policy to put blocks to, with counted ids and all that it reports."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

from tests.options import route_options
from toolwire.call_policy.ids import CallIds
from toolwire.call_policy.near import NearMiss
from toolwire.call_policy.policy import CallPolicy
from toolwire.config import LimitsConfig
from toolwire.model import ToolChoice, ToolSpec
from toolwire.scan._grammar import Block, BlockSyntax, Branch, Decision, Field, FoundCall

TAGS = BlockSyntax(
    opener="<call>",
    closer="</call>",
    framed=True,
    body=(
        (Branch(read="word", field="name", then=1),),
        (Branch(literal=">", read="object", field="arguments", then=2),),
        (Branch(literal="</call>"),),
    ),
    family="tags",
)


class PolicyBench:
    """A call policy, its counters and labels, and its near misses. Without `tools` any name may be called."""

    def __init__(
        self,
        *tools: ToolSpec,
        syntax: BlockSyntax,
        choice: ToolChoice | None = None,
        parallel: bool = True,
        most: int = 64,
        schemas: Any = None,
        **options: Any,
    ) -> None:
        self.counts: Counter[str] = Counter()
        self.labels: Counter[tuple[str, str]] = Counter()
        self.near: list[NearMiss] = []
        self.syntax = syntax
        numbers = itertools.count(1)
        self.policy = CallPolicy(
            tools or None,
            choice=choice or ToolChoice(),
            parallel=parallel,
            options=route_options(**options),
            limits=LimitsConfig(calls_per_response=most),
            count=lambda name: self.counts.update([name]),
            label=lambda name, label: self.labels.update([(name, label)]),
            near=self.near.append,
            ids=CallIds(new_id=lambda: f"call_{next(numbers)}"),
            schemas=schemas,
        )

    def block(
        self, text: str, syntax: BlockSyntax | None = None, field: Field = "call", *, closed: bool = True, **more: Any
    ) -> Decision:
        """The decision on a block that is one text."""
        return self.policy.block(Block(syntax or self.syntax, text, ((field, text),), closed, **more))

    def pieces(
        self, *pieces: tuple[Field, str], syntax: BlockSyntax = TAGS, text: str = "", broken: bool = False
    ) -> Decision:
        """The decision on a block of several fields."""
        return self.policy.block(Block(syntax, text, pieces, broken=broken))

    def call(self, *args: Any, **block: Any) -> FoundCall:
        """The one call that the text must be."""
        decision = self.block(*args, **block)
        assert decision == Decision(calls=decision.calls)
        (found,) = decision.calls
        return found
