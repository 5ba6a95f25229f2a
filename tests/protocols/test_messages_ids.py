"""Ids and signatures: injective, without a memory, and in letters and lengths that a server takes."""

from __future__ import annotations

import re

from hypothesis import example, given
from hypothesis import strategies as st

from tests.cases import every
from toolwire.call_policy.ids import LONGEST_ID, CallIds, is_gateway_id, new_call_id
from toolwire.protocols.messages.ids import (
    Signing,
    gateway_call_id,
    is_own_signature,
    message_id,
    read_id,
    server_id,
    signature_of,
    wire_id,
)
from toolwire.protocols.shared.call_ids import as_written, at_most

HEX = "0123456789abcdef" * 2
SAFE = re.compile(r"[a-zA-Z0-9_-]{1,256}")
ids = st.one_of(
    st.text(max_size=300),
    st.from_regex(r"call_[0-9a-f]{32}", fullmatch=True),
    st.from_regex(r"toolu_[0-9a-f]{32}", fullmatch=True),
    st.from_regex(r"(toolu_-{0,2}[ed]?){0,2}[a-zA-Z0-9_-]{0,8}", fullmatch=True),
    st.from_regex(r"[a-zA-Z0-9_-]{195,210}", fullmatch=True),
)


@given(st.lists(ids, unique=True, max_size=4))
@example([f"call_{HEX}", f"toolu_{HEX}", f"toolu_-toolu_{HEX}", HEX, f"toolu_-call_{HEX}"])
@example(["", "toolu_", "toolu_-", "-", "--", "toolu_--", "toolu_-toolu_-", "toolu_--e", "toolu_-toolu_--e"])
def test_two_calls_never_get_one_id(calls: list[str]) -> None:
    for mapped in (wire_id, server_id):
        written = [mapped(call) for call in calls]
        assert len(set(written)) == len(calls)
        assert all(SAFE.fullmatch(one) for one in written)
    assert all(wire_id(call).startswith("toolu_") for call in calls)


@given(
    st.sampled_from([40, 64]),
    st.lists(st.text(min_size=1, max_size=90) | st.text("ab\ud83d", min_size=30, max_size=70), unique=True, max_size=4),
)
def test_ids_fit_servers_that_bound_their_length(chars: int, given_ids: list[str]) -> None:
    """R24.2a: no two become one."""
    sent = [at_most(chars, ident) for ident in given_ids]
    assert all(0 < len(ident) <= chars for ident in sent)
    assert len(set(sent)) == len(sent)
    assert all(ident == was for ident, was in zip(sent, given_ids, strict=True) if len(was) <= chars)


@every(
    ("call_id", "shown"),
    [
        (f"call_{HEX}", f"toolu_{HEX}"),
        ("toolu_01D7FLrfh4GYq7yT1ULFeyMV", "toolu_01D7FLrfh4GYq7yT1ULFeyMV"),
        ("call_abc", "toolu_-call_abc"),
        ("functions.read:0", "toolu_--eZnVuY3Rpb25zLnJlYWQ6MA"),
    ],
)
def test_what_clients_see(call_id: str, shown: str) -> None:
    assert wire_id(call_id) == shown


def test_the_gateways_own_ids_are_found_again() -> None:
    own = new_call_id()
    assert gateway_call_id(wire_id(own)) == own
    for other in ("toolu_01D7FLrfh4GYq7yT1ULFeyMV", wire_id("call_abc"), "x"):
        assert gateway_call_id(other) == other


@given(ids)
@example("functions.read:0")
@example("call_0--2")
@example("toolu_-x")
@example("-e")
def test_what_a_server_wrote_is_read_again(call_id: str) -> None:
    """But for the gateway's own ids, which stay as clients have them, and digests."""
    shown = wire_id(call_id)
    again = read_id(shown)
    assert again == (
        call_id if shown.startswith("toolu_-") and not shown.startswith("toolu_--d") and call_id else shown
    )
    assert wire_id(again) in (shown, wire_id(shown))


@every("call_id", ["toolu_-", "toolu_--", "toolu_--x", "toolu_--e", "toolu_--e!", "toolu_--eYWJj", "x"])
def test_what_nobody_wrote_stays(call_id: str) -> None:
    assert read_id(call_id) == call_id


@given(st.lists(st.sampled_from(["call_0", "functions.read:0", "a--1"]), max_size=9))
def test_repeated_ids_are_numbered_and_told_as_they_were(written: list[str]) -> None:
    taken = CallIds(numbers=True)
    given_out = [taken.settle(one) for one in written]
    assert len(set(given_out)) == len(written)
    assert [as_written(one) for one in given_out] == written


def test_servers_get_what_they_take_as_it_is() -> None:
    assert [server_id(one) for one in ("call_abc", "toolu_01", "fc_1")] == ["call_abc", "toolu_01", "fc_1"]
    assert SAFE.fullmatch(server_id("functions.read:0"))


def test_an_id_that_was_given_out_is_known_again() -> None:
    assert is_gateway_id(wire_id(new_call_id()))
    assert not is_gateway_id("toolu_01D7FLrfh4GYq7yT1ULFeyMV")


@given(st.lists(st.text(st.characters(codec="utf-8"))))
def test_a_thought_is_signed_alike_however_it_comes(pieces: list[str]) -> None:
    signing = Signing()
    for piece in pieces:
        signing.take(piece)
    assert signing.signature == signature_of("".join(pieces))
    assert is_own_signature(signing.signature)


@every("signature", ["", "EuYBCkQYAiJA", None, 3, "toolwire"])
def test_signatures_of_others(signature: object) -> None:
    assert not is_own_signature(signature)


def test_ids_of_answers() -> None:
    assert message_id("msg_01X") == "msg_01X"
    assert re.fullmatch(r"msg_[0-9a-f]{32}", message_id("chatcmpl-1"))
    assert re.fullmatch(r"msg_[0-9a-f]{32}", message_id("msg_\n"))


def test_an_id_of_a_model_may_be_so_long_and_no_longer() -> None:
    ids = CallIds(new_id=lambda: "new")
    assert [ids.settle("x" * length) for length in (LONGEST_ID, LONGEST_ID + 1)] == ["x" * LONGEST_ID, "new"]
