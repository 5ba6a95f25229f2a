"""Ids of calls for servers that take short ones only (R24.2a)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.protocols.call_ids import server_id

ids = st.text(min_size=0, max_size=90) | st.text("ab\ud83d", max_size=3)


@pytest.mark.parametrize("most", [40, 64])
@given(st.lists(ids, unique=True, max_size=8))
def test_ids_fit_and_no_two_become_one(most: int, given_ids: list[str]) -> None:
    sent = [server_id(ident, most) for ident in given_ids]
    sent += [server_id(ident, most) for ident in sent if ident not in given_ids]  # what looks like one of these
    assert all(0 < len(ident) <= most for ident in sent)
    assert len(set(sent)) == len(sent)


@given(st.text(min_size=1, max_size=64))
def test_what_fits_stays(ident: str) -> None:
    assert server_id(ident, 64) == ident or ident.startswith("call_-")
    assert server_id("call_" + "0" * 59, 64) == "call_" + "0" * 59
