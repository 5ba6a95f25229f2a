"""Requests for a server that writes tools, calls and results with the model's own chat template (`mode: template`,
R31.1). Pure functions.

Rules of this module:

1. Tools, earlier calls and their results stay in the server's own fields.
2. The gateway only adds the policy sentences, in one place (R5.1, R5.3): the template writes the tools and the form of
   a call.
3. Texts and results are data and contain no marker of the format, as in prompt mode (R5.6).
4. Only callable tools are sent, because a model takes every tool in its prompt to be on offer.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..config import PromptConfig
from ..formats.base import ToolFormat, escaping_for
from ..formats.engine.results import Escapes
from ..model import Message, ModelRequest, Part, Text, ToolChoice, ToolResult, ToolSpec, replace
from .placing import SYSTEM, Placement, place_segment
from .prompt import MAY, NEVER, policy
from .transcript import TranscriptWriter, Write, write_each


def policy_beside(request: ModelRequest, tool_format: ToolFormat, prompt: PromptConfig) -> str:
    """Returns the policy sentences for `request`; empty if there are none."""
    if request.tool_choice.mode == "none":
        return NEVER if any(tool.kind != "hosted" for tool in request.tools) else ""
    tools = request.callable_tools
    if not tools:
        return ""
    free = MAY if prompt.beside_template is None else prompt.beside_template
    escape = escaping_for(tool_format).value
    return policy(tools, request.tool_choice, request.parallel_tool_calls, escape, free=free, several="")


def shown_tools(request: ModelRequest, prompt: PromptConfig) -> Sequence[ToolSpec]:
    """Returns the tools for the template: the callable ones; under `none` all, if `inject_when_none` is set."""
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
    """Returns the request for a server that writes `tools` into the prompt. With `choice`, the server leaves the
    answer's text unchanged.

    `beside` is added to the prompt, `reminder` to the end of the user's last message. `also`: further markers that the
    route reads. `escapes` collects the escapes made. `wire` is the name of the server's protocol. `special_tokens`: ask
    the server to include them in its answer.
    """

    def writing(made: Escapes) -> Write:
        writer = _Data(tool_format, bracket=False, also=also, escapes=made)
        return lambda message: writer.talk(message, message.parts)

    if escapes is not None:
        escapes.markers = escaping_for(tool_format, also).markers
    past = request.past
    messages: Sequence[Message] = write_each(request.messages, ("templated", tool_format, also), writing, escapes, past)
    messages = place_segment(messages, request.messages, beside, placement, reminder, wire, past)
    return replace(
        request,
        messages=tuple(messages),
        tools=tuple(tools),
        tool_choice=choice if tools else ToolChoice("none"),
        parallel_tool_calls=True,
        special_tokens=special_tokens or request.special_tokens,
    )


class _Data(TranscriptWriter):
    """Escapes markers in messages and results, and leaves calls and results in their fields."""

    def talk(self, message: Message, parts: tuple[Part, ...]) -> Message:
        if message.role in SYSTEM:
            return message
        safe = self._composed(parts)
        name = None if message.name is None else self._escaping.text(message.name)
        same = name == message.name and safe == parts
        return message if same else replace(message, parts=safe, name=name)

    def _other(self, part: Part) -> Part:
        if isinstance(part, ToolResult):
            parts = self._composed(part.parts)
            if self._escapes is not None:  # a weak model may repeat the result block that the template writes
                size = sum(len(inner.text) for inner in parts if isinstance(inner, Text))
                self._escapes.note_results(self.format.results, size)
            return part if parts == part.parts else replace(part, parts=parts)
        return super()._other(part)
