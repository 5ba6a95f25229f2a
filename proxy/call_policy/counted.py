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
        "calls", "Calls that were found. All except those of server-side tools reached the client.", OUTCOMES, "emitted"
    ),
    AccessField(
        "recognised",
        "Of those: in an untaught form (`calls.recognise`).",
        CounterSpec("toolwire_tool_calls_recognised_total", "Calls in an untaught form", "form"),
    ),
    AccessField(
        "recovered",
        "Of those: in a damaged or unknown form, identified by the tool's schema (`calls.recognise: any`).",
        CounterSpec("toolwire_tool_calls_recovered_total", "Calls in a damaged or unknown form"),
    ),
    AccessField(
        "repaired",
        "Of those: repaired JSON or a missing closing tag (`calls.repair`, `calls.unclosed`).",
        CounterSpec("toolwire_tool_call_repairs_total", "Repaired calls", "kind", tuple(REPAIRS)),
    ),
    AccessField(
        "coerced",
        "Of those: arguments of a wrong type were converted (`calls.coerce`).",
        CounterSpec("toolwire_tool_call_coercions_total", "Calls with converted arguments", "kind", tuple(COERCIONS)),
    ),
    AccessField("unclosed_repaired", "Of those: the closing tag was missing."),
    AccessField("object_arguments", "Of those: arguments were an object where a string is taught."),
    AccessField(
        "parse_failures",
        "Blocks that were not calls.",
        CounterSpec(
            "toolwire_tool_call_parse_failures_total",
            "Blocks that were not calls",
            "reason",
            tuple(PARSE_FAILURES),
            by_model=True,
        ),
    ),
    AccessField(
        "unrecognised",
        "Texts in an untaught form that named a tool on offer but were not calls.",
        CounterSpec(
            "toolwire_tool_calls_unrecognised_total",
            "Texts in an untaught form that named a tool on offer but were not calls",
            "reason",
            tuple(REASONS),
        ),
    ),
    AccessField(
        "near_misses",
        "Attempted tool calls that could not be parsed or did not fit.",
        CounterSpec("toolwire_near_misses_total", "Attempted tool calls that could not be parsed or did not fit"),
    ),
    AccessField("excess_calls", "Blocks beyond `limits.calls_per_response`."),
    AccessField("unknown_names", "Calls of unknown tools.", OUTCOMES, "unknown_name"),
    AccessField(
        "schema_warnings",
        "Calls of non-strict tools whose arguments do not fit the schema.",
        OUTCOMES,
        "schema_warning",
    ),
    AccessField(
        "strict_failures",
        "Calls that failed because their tool is strict.",
        CounterSpec("toolwire_strict_failures_total", "Strict failures", "code"),
    ),
    AccessField(
        "dropped_parallel",
        "Calls that were dropped because `parallel_tool_calls` was off.",
        OUTCOMES,
        "dropped_parallel",
    ),
    AccessField(
        "deduped",
        "Calls that were dropped because they repeated another one (`calls.dedupe_calls`), or because they ended an answer whose calls are demanded or enforced.",
        OUTCOMES,
        "deduped",
    ),
    AccessField(
        "truncated_calls",
        "Calls that were cut off. Of long ones the client may have got the beginning (`calls.argument_streaming`).",
        OUTCOMES,
        "truncated",
    ),
    AccessField("withdrawn_calls", "Streamed calls that turned out malformed, so the answer failed."),
)
"""Fields of the access line that count calls: `CallPolicy` counts those found in text, the middleware `arguments` those
that a server makes itself."""
