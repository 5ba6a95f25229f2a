"""Values of JSON, for laws about texts that hold some."""

from __future__ import annotations

from hypothesis import strategies as st

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=10,
)
OBJECTS = st.dictionaries(st.text(max_size=6), VALUES, max_size=4)
