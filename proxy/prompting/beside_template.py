"""A conversation with tools for a server that writes tools, calls and results by the model's own chat template
(`mode: template`, R31.1). Pure functions.

Rules of this module:

1. Tools, earlier calls and their results stay what they are: the server's own fields carry them.
2. Beside the template stands only the policy, in one place (R5.1, R5.3): the tools and the form of a call are the
   template's business.
3. Texts and results are data and hold no marker of the format, as in prompt mode (R5.6).
4. Only tools that may be called are sent: what a template writes into the prompt, the model takes to be on offer.
"""

from __future__ import annotations

from collections.abc import Sequence

from toolwire.config import PromptConfig
from toolwire.formats.base import ToolFormat, escaping_for
from toolwire.formats.engine.restoring import Escapes
from toolwire.model import Message, ModelRequest, Part, Text, ToolChoice, ToolResult, ToolSpec, replace
from toolwire.prompting.placing import SYSTEM, Placement, completed
from toolwire.prompting.prompt import MAY, NEVER, policy
from toolwire.prompting.transcript import TranscriptWriter, Write, write_each


def policy_beside(request: ModelRequest, tool_format: ToolFormat, prompt: PromptConfig) -> str:
    """The sentences beside the template of `request`; empty if there is nothing to say."""
    if request.tool_choice.mode == "none":
        return NEVER if any(tool.kind != "hosted" for tool in request.tools) else ""
    tools = request.callable_tools
    if not tools:
        return ""
    free = MAY if prompt.beside_template is None else prompt.beside_template
    escape = escaping_for(tool_format).value
    return policy(tools, request.tool_choice, request.parallel_tool_calls, escape, free=free, several="")


def shown_tools(request: ModelRequest, prompt: PromptConfig) -> Sequence[ToolSpec]:
    """The tools that the template is to write: those that may be called; under `none` all, if `inject_when_none` asks
    for it."""
    if request.tool_choice.mode == "none" and prompt.inject_when_none:
        return tuple(tool for tool in request.tools if tool.kind != "hosted")
    return request.callable_tools


def templated(
    request: ModelRequest,
    tools: Sequence[ToolSpec],
    choice: ToolChoice,
    beside: str,
    tool_format: ToolFormat,
    *,
    placement: Placement = "append",
    also: tuple[str, ...] = (),
    escapes: Escapes | None = None,
    reminder: str = "",
    wire: str | None = None,
    special_tokens: bool = False,
) -> ModelRequest:
    """The request for a server that is to write `tools` into the prompt and to leave its answer alone, which it does
    under this `choice`.

    `beside` is put beside the template, `reminder` at the end of what the user says. `also`: what else than the
    format's own markers the route reads as such. `escapes` notes what was escaped. `wire` is the name of the server's
    protocol. `special_tokens`: the server is to show them in its answer.
    """

    def writing(made: Escapes) -> Write:
        writer = _Data(tool_format, bracket=False, also=also, escapes=made)
        return lambda message: writer.talk(message, message.parts)

    if escapes is not None:
        escapes.markers = escaping_for(tool_format, also).markers
    past = request.past
    messages: Sequence[Message] = write_each(request.messages, ("templated", tool_format, also), writing, escapes, past)
    messages = completed(messages, request.messages, beside, placement, reminder, wire, past)
    return replace(
        request,
        messages=tuple(messages),
        tools=tuple(tools),
        tool_choice=choice if tools else ToolChoice("none"),
        parallel_tool_calls=True,
        special_tokens=special_tokens or request.special_tokens,
    )


class _Data(TranscriptWriter):
    """Writes what was said and what tools returned without markers, and leaves calls and results in their places."""

    def talk(self, message: Message, parts: tuple[Part, ...]) -> Message:
        """The message with the same parts, without markers; instructions stay as they are."""
        if message.role in SYSTEM:
            return message
        safe = self._composed(parts)
        name = None if message.name is None else self._escaping.text(message.name)
        same = name == message.name and safe == parts
        return message if same else replace(message, parts=safe, name=name)

    def _other(self, part: Part) -> Part:
        if isinstance(part, ToolResult):
            parts = self._composed(part.parts)
            if self._escapes is not None:  # the template writes the block that a weak model repeats
                size = sum(len(inner.text) for inner in parts if isinstance(inner, Text))
                self._escapes.note_results(self.format.results, size)
            return part if parts == part.parts else replace(part, parts=parts)
        return super()._other(part)
