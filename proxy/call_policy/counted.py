"""Counts of calls: fields of the access line (R18.1) and metrics (R18.2)."""

from __future__ import annotations

from typing import Final

from ..record import AccessField, CounterSpec
from .coercion import COERCIONS
from .policy import PARSE_FAILURES, REPAIRS
from .recognised import REASONS

OUTCOMES: Final = CounterSpec(
    "toolwire_tool_calls_total",
    "Tool calls by outcome",
    "outcome",
    ("emitted", "dropped_parallel", "deduped", "truncated", "unknown_name", "schema_warning"),
    by_model=True,
)

CALL_FIELDS: Final = (
    AccessField(
        "calls", "Calls that were found; all but those of server-side tools reached the client.", OUTCOMES, "emitted"
    ),
    AccessField(
        "recognised",
        "Of those: in a form that was not taught (`calls.recognise`).",
        CounterSpec("toolwire_tool_calls_recognised_total", "Calls in a form that was not taught", "form"),
    ),
    AccessField(
        "recovered",
        "Of those: in a damaged or unknown form, which only the tool's schema could tell (`calls.recognise: any`).",
        CounterSpec("toolwire_tool_calls_recovered_total", "Calls in a damaged or unknown form"),
    ),
    AccessField(
        "repaired",
        "Of those: mended.",
        CounterSpec("toolwire_tool_call_repairs_total", "Repaired calls", "kind", tuple(REPAIRS)),
    ),
    AccessField(
        "coerced",
        "Of those: arguments of a wrong type were mended (`calls.coerce`).",
        CounterSpec("toolwire_tool_call_coercions_total", "Calls with mended arguments", "kind", tuple(COERCIONS)),
    ),
    AccessField("unclosed_repaired", "Of those: the closing tag was missing."),
    AccessField("object_arguments", "Of those: an object stood where a string is taught."),
    AccessField(
        "parse_failures",
        "Blocks that were no calls.",
        CounterSpec(
            "toolwire_tool_call_parse_failures_total",
            "Blocks that were no calls",
            "reason",
            tuple(PARSE_FAILURES),
            by_model=True,
        ),
    ),
    AccessField(
        "unrecognised",
        "Texts that named a tool on offer in a form that was not taught, and were no calls.",
        CounterSpec(
            "toolwire_tool_calls_unrecognised_total",
            "What named a tool in such a form, and was no call",
            "reason",
            tuple(REASONS),
        ),
    ),
    AccessField(
        "near_misses",
        "Blocks and calls that the model meant as calls, and that were none.",
        CounterSpec("toolwire_near_misses_total", "What was meant as a call and was none"),
    ),
    AccessField("excess_calls", "Blocks beyond `limits.calls_per_response`."),
    AccessField("unknown_names", "Calls of tools that were not on offer.", OUTCOMES, "unknown_name"),
    AccessField(
        "schema_warnings", "Calls of tools that are not strict whose arguments do not fit.", OUTCOMES, "schema_warning"
    ),
    AccessField(
        "strict_failures",
        "Calls that a strict tool made an error.",
        CounterSpec("toolwire_strict_failures_total", "Strict failures", "code"),
    ),
    AccessField(
        "dropped_parallel",
        "Calls that vanished because `parallel_tool_calls` was off.",
        OUTCOMES,
        "dropped_parallel",
    ),
    AccessField(
        "deduped",
        "Calls that vanished because they repeated another one (`calls.dedupe_calls`), or ended an answer whose calls are demanded or enforced.",
        OUTCOMES,
        "deduped",
    ),
    AccessField(
        "truncated_calls",
        "Calls that were cut off; under `calls.argument_streaming: incremental` they were begun and not ended.",
        OUTCOMES,
        "truncated",
    ),
    AccessField("withdrawn_calls", "Calls that were begun and turned out malformed, so that the answer failed."),
)
"""Counted by `CallPolicy`; for a server's own calls by the middleware `arguments`."""
