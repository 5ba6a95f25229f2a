"""Ids of calls for servers that bound their length (R24.2a)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolwire.protocols.shared.call_ids import at_most

ids = st.text(min_size=1, max_size=90) | st.text("ab\ud83d", min_size=30, max_size=70)


@pytest.mark.parametrize("chars", [40, 64])
@given(st.lists(ids, unique=True, max_size=8))
def test_ids_fit_and_no_two_become_one(chars: int, given_ids: list[str]) -> None:
    sent = [at_most(chars, ident) for ident in given_ids]
    assert all(0 < len(ident) <= chars for ident in sent)
    assert len(set(sent)) == len(sent)
    assert all(ident == was for ident, was in zip(sent, given_ids, strict=True) if len(was) <= chars)
