"""Responses over the wire: how to ask, and what is true of every answer, whole or streamed, whatever it says."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aiohttp.test_utils import TestServer

from tests.e2e.conftest import function, post
from tests.protocols.published import SHARED
from tests.protocols.responses_wires import accumulate, check_event, check_resource, text_of
from toolwire.testing import WireAnswer

RESPONSES = "/v1/responses"
TERMINAL = ("response.completed", "response.incomplete", "response.failed")
ARGUMENTS_KEYS = {
    "response.function_call_arguments.delta": {"type", "sequence_number", "item_id", "output_index", "delta"},
    "response.function_call_arguments.done": {
        "type", "sequence_number", "item_id", "output_index", "name", "arguments",
    },
}  # fmt: skip
"""R8.8: exactly these, so never a `call_id`."""
PREFIXES = {
    "message": "msg_", "function_call": "fc_", "custom_tool_call": "ctc_", "reasoning": "rs_", "mcp_list_tools": "mcpl_",
    "mcp_call": "mcp_", "mcp_approval_request": "mcpr_", "shell_call": "sh_",
}  # fmt: skip
PUBLISHED = (SHARED / "spec/data").exists()
"""The published schemas are there. `test_responses_wire` says so visibly if they are not."""

Said = tuple[str, ...]


@dataclass(frozen=True)
class Streamed:
    """A stream that passed every check: its events, and the resource of the last."""

    events: list[Any]
    resource: Any

    @property
    def kinds(self) -> list[str]:
        """The types of the events, without `response.`."""
        return [event["type"].removeprefix("response.") for event in self.events]


async def ask(server: TestServer, *, headers: Mapping[str, str] | None = None, **body: Any) -> WireAnswer:
    """`POST /v1/responses`; `input` need not be given."""
    return await post(server, {"input": "hi", **body}, path=RESPONSES, headers=headers)


def of_whole(answer: WireAnswer, *, schemas: bool = PUBLISHED) -> Any:
    """The resource of an answer that is not streamed. `schemas`: hold it against the published ones."""
    assert answer.status == 200, answer.body
    assert answer.headers["Content-Type"].partition(";")[0] == "application/json"
    resource = answer.json()
    if schemas:
        check_resource(resource)
    check_items(resource["output"])
    return resource


def of_stream(answer: WireAnswer, *, marker: bool = False, schemas: bool = PUBLISHED) -> Streamed:
    """The events of a streamed answer, after every check that holds for all of them (R8.7 to R8.12). `marker`: a
    `[DONE]` must stand at the end, as without it must not."""
    assert answer.status == 200, answer.body
    assert answer.headers["Content-Type"] == "text/event-stream; charset=utf-8"
    assert answer.headers["Cache-Control"] == "no-cache"
    events = read_events(answer.body, marker=marker)
    *before, last = events
    assert [event["type"] for event in events[:2]] == ["response.created", "response.in_progress"]
    assert [event["type"] for event in events if event["type"] in TERMINAL] == [last["type"]]
    resource = last["response"]
    assert f"response.{resource['status']}" == last["type"]
    running = events[0]["response"]
    assert (running["status"], running["output"], running["usage"]) == ("in_progress", [], None)
    for event in before:
        assert event.get("response", running) == running
        assert set(event) == ARGUMENTS_KEYS.get(event["type"], set(event))
    changing = ("status", "output", "usage", "error", "incomplete_details", "completed_at")
    assert {key: value for key, value in resource.items() if key not in changing} == {
        key: value for key, value in running.items() if key not in changing
    }
    done = accumulate(events)
    assert resource["output"][: len(done)] == done
    if resource["status"] != "failed":
        assert resource["output"] == done
    check_items(resource["output"])
    if schemas:
        for event in events:
            check_event(event)
    return Streamed(events, resource)


def read_events(body: bytes, *, marker: bool = False) -> list[Any]:
    """The parsed events. Checks the frames: `event` equals `type`, one line of JSON, numbers from 0 without gaps."""
    frames = [frame for frame in body.decode().split("\n\n") if not frame.startswith(":")]
    assert frames.pop() == ""
    if marker:
        assert frames.pop() == "data: [DONE]"
    events = []
    for number, frame in enumerate(frames):
        name, text = frame.split("\n")
        event = json.loads(text.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        assert event["sequence_number"] == number
        events.append(event)
    return events


def check_items(items: Sequence[Any]) -> None:
    """Ids are there, of the right form, and nowhere twice; only the last item may be incomplete; arguments are JSON in
    the others."""
    ids = [item["id"] for item in items]
    call_ids = [item["call_id"] for item in items if "call_id" in item]
    assert len(set(ids)) == len(ids)
    assert len(set(call_ids)) == len(call_ids)
    for item in items:
        assert item["id"].startswith(PREFIXES[item["type"]])
        failed = item["type"] == "mcp_call" and item["status"] == "failed"
        assert failed or item.get("status", "completed") == "completed" or item is items[-1]
        if item["type"] == "function_call":
            assert list(item)[:6] == ["id", "type", "status", "arguments", "call_id", "name"]
            if item["status"] == "completed":
                json.loads(item["arguments"])


def outline(resource: Any) -> list[Said]:
    """What an answer says, item for item, without what is different every time."""
    return [_line(item) for item in resource["output"]]


def _line(item: Any) -> Said:
    match item["type"]:
        case "function_call":
            group = (item["namespace"],) if "namespace" in item else ()
            return ("call", *group, item["name"], item["arguments"])
        case "custom_tool_call":
            return ("custom", item["name"], item["input"])
        case "message":
            (part,) = item["content"]
            return ("refusal" if part["type"] == "refusal" else "text", text_of(item))
        case "mcp_list_tools":
            return ("listed", item["server_label"], *((item["error"],) if "error" in item else ()))
        case "mcp_call":
            became = item["output"] if item["error"] is None else item["error"]["content"][0]["text"]
            return ("ran" if item["error"] is None else "failed", item["server_label"], item["name"], became)
        case "mcp_approval_request":
            return ("asks", item["server_label"], item["name"], item["arguments"])
        case kind:
            return (kind, text_of(item))


def tool(name: str, *, strict: bool | None = None, **properties: Any) -> dict[str, Any]:
    """A function tool in the flat shape, all of whose properties are required."""
    return {"type": "function", **function(name, strict=strict, **properties)["function"]}
