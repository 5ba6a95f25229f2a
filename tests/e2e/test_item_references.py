"""`item_reference`: whoever has seen an item's id can name it in place of the item (R8.2)."""

from __future__ import annotations

from typing import Any

from tests.cases import every
from tests.e2e.conftest import Gateway, gateway_before, upstream_config
from tests.e2e.test_conversation import CALL, LOOK, RESPONSES, ask, client, get, texts
from toolwire.middlewares.conversation import MAX_REFERRED
from toolwire.protocols.responses.ids import derived_id, new_response_id
from toolwire.testing import Say, Upstream


def refer(*items: Any) -> list[dict[str, str]]:
    return [{"type": "item_reference", "id": item["id"]} for item in items]


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


async def test_a_reference_stands_for_the_item() -> None:
    """Texts, calls and what the client itself sent, in the order of the references; the item is kept with the new
    turn."""
    async with (
        gateway_before([Say(f"I look.{CALL}"), Say("It is blue."), Say("Bye.")]) as (server, upstream),
        client(server) as session,
    ):
        first = await ask(session, input="What colour?", tools=[LOOK])
        text, call = first["output"]
        (asked,) = (await get(session, f"{first['id']}/input_items"))["data"]
        result = {"type": "function_call_output", "call_id": call["call_id"], "output": "blue"}
        second = await ask(session, input=[*refer(asked, text, call), result], tools=[LOOK])
        kept = await get(session, f"{second['id']}/input_items?order=asc")
        assert kept["data"][:3] == [asked, text, call]
        await ask(session, input="Thanks.", previous_response_id=second["id"], tools=[LOOK])
    for request in upstream.requests[1:]:
        said = [(role, content) for role, content in texts(request) if role != "system"]
        assert [role for role, _ in said[:3]] == ["user", "assistant", "user"]
        assert said[0][1] == "What colour?"
        assert said[1][1].startswith("I look.")
        assert '"name":"look"' in said[1][1]
        assert "\nblue\n</tool_response>" in said[2][1]
    assert [content for _, content in texts(upstream.requests[2])[-2:]] == ["It is blue.", "Thanks."]


async def test_what_the_conversation_holds_is_not_said_twice() -> None:
    async with gateway_before([Say("One."), Say("Two.")]) as (server, upstream), client(server) as session:
        first = await ask(session, input="Count.")
        more = [*refer(*first["output"]), user("On.")]
        await ask(session, input=more, previous_response_id=first["id"])
    assert texts(upstream.requests[1]) == [("user", "Count."), ("assistant", "One."), ("user", "On.")]


@every("why", ["never made", "not kept", "deleted", "of somebody else", "of another form", "without a store"])
async def test_what_cannot_be_found_is_ignored(gateway: Gateway, why: str) -> None:
    async with Upstream([Say("One."), Say("Two.")]) as upstream:
        store = {"kind": "none" if why == "without a store" else "memory"}
        server = await gateway(upstream_config(upstream.url, auth={"keys": ["k1", "k2"]}, store=store))
        async with client(server, "k2" if why == "of somebody else" else "k1") as session:
            first = await ask(session, input="Count.", store=why != "not kept")
            if why == "deleted":
                async with session.delete(f"{RESPONSES}/{first['id']}") as response:
                    assert response.status == 200
        ids = {"never made": derived_id("message", new_response_id(), 0), "of another form": "msg_1"}
        reference = {"type": "item_reference", "id": ids.get(why, first["output"][0]["id"])}
        async with client(server) as session:
            await ask(session, input=[reference, user("On.")])
    assert texts(upstream.requests[1]) == [("user", "On.")]


async def test_one_request_leads_to_so_many_responses_at_most() -> None:
    """What one request costs the store is bounded."""
    async with (
        gateway_before([Say("One."), Say("Two."), Say("Three.")]) as (server, upstream),
        client(server) as session,
    ):
        first = await ask(session, input="Count.")
        others = [{"id": derived_id("message", new_response_id(), 0)} for _ in range(MAX_REFERRED)]
        await ask(session, input=[*refer(*others[1:], *first["output"]), user("On.")])
        await ask(session, input=[*refer(*others, *first["output"]), user("On.")])
    assert texts(upstream.requests[1]) == [("assistant", "One."), ("user", "On.")]
    assert texts(upstream.requests[2]) == [("user", "On.")]
