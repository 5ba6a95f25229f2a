"""Text back into calls.

Declares a scanner on every reply to a request into which tools were injected. Without an offer there is nothing to find, and
the answer keeps its bytes (R1.6, R1.7). Arguments are given out while they come only where the client reads a stream: in a whole
answer nothing is gained by it.
"""

from __future__ import annotations

from proxy.exchange import Exchange
from proxy.middleware import Middleware
from proxy.reply import Reply
from proxy.scanning import ScanStage


class Transformation(Middleware):
    """Finds calls in the answer's text, in the format that the injection taught."""

    def declare(self, exchange: Exchange, reply: Reply) -> None:
        """See `Middleware.declare`."""
        if exchange.offer is not None:
            route = exchange.route
            options = route.options
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
