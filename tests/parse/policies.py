"""A call policy for tests of the scanners: what a block becomes depends on plain words in its body, so that any text
can reach any decision. The product's own policy has its own tests."""

from __future__ import annotations

from dataclasses import dataclass, field

from toolwire.errors import GatewayError, ModelFault
from toolwire.scan._grammar import AS_TEXT, DROPPED, Block, BlockSyntax, Decision, Field, FoundCall, Why


@dataclass
class WordPolicy:
    """`x` in the body makes a call, `xx` two (behind a text if there is an `r`, behind a thought if there is a `d`),
    `d` drops, `r` puts a text in its place; else strict fails, soft is text."""

    strict: bool = False
    unwrap: bool = True
    callable_names: tuple[str, ...] = ("f", "get")
    log: list[tuple[object, ...]] = field(default_factory=list)
    begun: list[str] = field(default_factory=list)
    """Blocks that were none; the oracle tells of none."""

    def block(self, block: Block) -> Decision:
        body = block.body
        self.log.append((block.syntax.opener, body, block.pieces, block.closed, block.broken, block.first))
        call = FoundCall("f", f"call_{len(self.log)}", body.strip())
        if "xx" in body:
            return Decision(
                calls=(call, FoundCall("g", f"call_{len(self.log)}b", "", "custom", "space", "its own source")),
                replacement=" said " if "r" in body else None,
                reasoning="thought" if "d" in body else "",
            )
        if "x" in body:
            return Decision(calls=(call,))
        if "d" in body:
            return DROPPED
        if "r" in body:
            return Decision(replacement=" [rejected] ")
        return Decision(error=ModelFault("no call")) if self.strict else AS_TEXT

    def may_call(self, name: str, untaught: bool) -> bool:
        return "x" in name or name in self.callable_names

    def opening(self, syntax: BlockSyntax, pieces: tuple[tuple[Field, str], ...]) -> None:
        return None

    def withdrawn(self, opened: FoundCall, *, cut: bool) -> GatewayError:
        return ModelFault(f"{opened.name} was withdrawn")

    def broken(self, syntax: BlockSyntax, begun: str) -> None:
        self.begun.append(begun)

    def unfinished(self, syntax: BlockSyntax, body: str, why: Why) -> Decision:
        self.log.append((syntax.opener, body, why))
        if why == "truncated":
            return DROPPED
        return Decision(error=ModelFault("no end")) if self.strict else AS_TEXT


class KeepingPolicy(WordPolicy):
    """`x` in the body makes one call; everything else is text."""

    def block(self, block: Block) -> Decision:
        return Decision(calls=(FoundCall("f", "call_1", block.body),)) if "x" in block.body else AS_TEXT
