"""Ids of responses and items: fresh, derived, and the way back."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolwire.protocols.responses.ids import PREFIXES, derived_id, new_response_id, response_of

KINDS = [*PREFIXES, "web_search_call"]
PLACES = [*range(40), 2046]
SOME = "resp_" + "0123456789abcdef" * 2


def test_the_form_of_ids() -> None:
    """R8.13: a prefix and 32 hexadecimal digits."""
    fresh = {new_response_id() for _ in range(100)}
    assert len(fresh) == 100
    assert all(re.fullmatch(r"resp_[0-9a-f]{32}", ident) for ident in fresh)
    assert re.fullmatch(r"msg_[0-9a-f]{32}", derived_id("message", fresh.pop(), 0))
    assert re.fullmatch(r"item_[0-9a-f]{32}", derived_id("web_search_call", "resp_1", 0))


@given(st.sampled_from(KINDS), st.integers(0, 2046), st.booleans())
def test_an_id_made_here_leads_back(kind: str, place: int, is_input: bool) -> None:
    response = new_response_id()
    assert response_of(derived_id(kind, response, place, of_input=is_input)) == response


@pytest.mark.parametrize("response", ["resp_00000000000040008000000000000000", SOME, "resp_1"])
def test_items_of_a_response_have_different_ids(response: str) -> None:
    places = [(place, is_input) for place in [*PLACES, 2047, 5000] for is_input in (False, True)]
    ids = {derived_id("message", response, place, of_input=is_input) for place, is_input in places}
    assert len(ids) == len(places)
    assert ids == {derived_id("message", response, place, of_input=is_input) for place, is_input in places}


@pytest.mark.parametrize(
    "ident", ["", "fc_001", "msg_1", SOME, "msg_" + "g" * 32, "call_" + "0" * 32, "xmsg_" + "0" * 32]
)
def test_ids_that_lead_nowhere(ident: str) -> None:
    assert response_of(ident) is None


def test_an_id_from_elsewhere_does_not_lead_back_to_it() -> None:
    assert response_of(derived_id("message", SOME, 0)) != SOME
