"""What becomes of a call's arguments behind the scanner, as `toolwire.middlewares.arguments` decides it."""

from __future__ import annotations

from toolwire.call_policy.coercion import coerce
from toolwire.call_policy.json_calls import settle_arguments
from toolwire.extras.inspector.asked import Asked
from toolwire.extras.inspector.judgements import Judgement, coerced, repaired
from toolwire.model import ToolSpec
from toolwire.schemas.schema import SchemaProblem, compile_schema


def settled(name: str, arguments: str, asked: Asked, *, native: bool) -> tuple[str, list[Judgement]]:
    """The arguments of a finished call as the client gets them, and what was done to them. `native`: the server made
    the call, and no scanner has judged it."""
    tool = next((tool for tool in asked.offer.tools if tool.name == name and tool.kind == "function"), None)
    if tool is None or tool.strict is True:
        return arguments, []
    done: list[Judgement] = []
    if native:
        try:
            text, kinds = settle_arguments(arguments, repair=asked.options.calls.repair == "safe")
        except ValueError as error:
            return arguments, [Judgement("refused", f"Text, not a call: {error}")]
        done += [repaired(kind, arguments) for kind in kinds]
        arguments = text
    if asked.options.calls.coerce == "safe":
        arguments, kinds_ = _coerced(arguments, tool)
        done += map(coerced, kinds_)
    return arguments, done


def _coerced(arguments: str, tool: ToolSpec) -> tuple[str, tuple[str, ...]]:
    try:
        schema = compile_schema(tool.parameters)
        mended = coerce(arguments, schema) if schema.check(arguments) is not None else None
    except SchemaProblem:
        return arguments, ()
    return (arguments, ()) if mended is None else (mended.text, mended.kinds)
