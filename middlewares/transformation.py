"""Text back into calls.

Declares a scanner on every reply to a request into which tools were injected. Without an offer there is no call to find, and
the answer keeps its bytes (R1.6, R1.7); but where the model's format puts markup around everything that is said, that is no part of
the answer. Arguments are given out while they come only where the client reads a stream: in a whole answer nothing is gained by it.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from proxy.exchange import Exchange, Offer
from proxy.formats.base import ToolFormat
from proxy.middleware import Middleware
from proxy.model import ToolChoice
from proxy.reply import Reply
from proxy.scanning import ScanStage


class Transformation(Middleware):
    """Finds calls in the answer's text, in the format that the injection taught."""

    def declare(self, exchange: Exchange, reply: Reply) -> None:
        """See `Middleware.declare`."""
        route = exchange.route
        options = route.options
        if exchange.offer is not None:
            incremental = options.argument_streaming == "incremental" and exchange.received.stream
            record = exchange.record
            stage = ScanStage(
                exchange.offer,
                options,
                route.limits,
                record.count,
                label=record.label,
                incremental=incremental,
                history=exchange.request.messages,
            )
            reply.scan(stage)
            record.note("format", exchange.offer.format.name)
            reply.at_end(lambda: record.count("scanned_bytes", stage.scanned_bytes))
        elif options.mode != "native":
            tool_format = route.format_for(exchange.request.model)
            if tool_format.framing is not None:
                reply.scan(ScanStage(_nothing(tool_format), options, route.limits, lambda name: None))


@lru_cache(maxsize=256)
def _nothing(tool_format: ToolFormat) -> Offer:
    """An offer of no tools, so that only framing is looked for."""
    assert tool_format.framing is not None
    return Offer((), ToolChoice("none"), True, replace(tool_format, grammar=tool_format.framing), ())
