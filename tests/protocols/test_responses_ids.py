"""Ids of responses and items: fresh, derived, and the way back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolwire.protocols.responses.ids import PREFIXES, derived_id, new_response_id, response_of

KINDS = [*PREFIXES, "web_search_call"]
PLACES = [*range(40), 2046]
SOME = "resp_" + "0123456789abcdef" * 2


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
