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
        "calls", "Calls that were found; the client got all but those of server-side tools.", OUTCOMES, "emitted"
    ),
    AccessField(
        "recognised",
        "Of those: in an untaught form (`calls.recognise`).",
        CounterSpec("toolwire_tool_calls_recognised_total", "Calls in an untaught form", "form"),
    ),
    AccessField(
        "recovered",
        "Of those: in a damaged or unknown form (`calls.recognise: any`).",
        CounterSpec("toolwire_tool_calls_recovered_total", "Calls in a damaged or unknown form"),
    ),
    AccessField(
        "repaired",
        "Of those: repaired JSON or a missing closing tag (`calls.repair`, `calls.unclosed`).",
        CounterSpec("toolwire_tool_call_repairs_total", "Repaired calls", "kind", tuple(REPAIRS)),
    ),
    AccessField(
        "coerced",
        "Of those: with converted arguments (`calls.coerce`).",
        CounterSpec("toolwire_tool_call_coercions_total", "Calls with converted arguments", "kind", tuple(COERCIONS)),
    ),
    AccessField("unclosed_repaired", "Of those: without a closing tag."),
    AccessField("object_arguments", "Of those: with an object as arguments where a string is taught."),
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
        "Texts in an untaught form that named a tool but were no calls.",
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
        "Calls of soft tools that do not fit the schema.",
        OUTCOMES,
        "schema_warning",
    ),
    AccessField(
        "strict_failures",
        "Calls of strict tools that failed.",
        CounterSpec("toolwire_strict_failures_total", "Strict failures", "code"),
    ),
    AccessField(
        "dropped_parallel",
        "Calls dropped because `parallel_tool_calls` was off.",
        OUTCOMES,
        "dropped_parallel",
    ),
    AccessField(
        "deduped",
        "Calls dropped as repetitions (`calls.dedupe_calls`, or at the end of an answer whose calls are demanded or enforced).",
        OUTCOMES,
        "deduped",
    ),
    AccessField(
        "truncated_calls",
        "Calls that were cut off; of long ones the client may have the beginning (`calls.argument_streaming`).",
        OUTCOMES,
        "truncated",
    ),
    AccessField("withdrawn_calls", "Streamed calls that became malformed: the answer failed."),
)
"""Fields of the access line that count calls: `CallPolicy` counts those found in text, the middleware `arguments` those
that a server makes itself."""
