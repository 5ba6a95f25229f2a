"""Names of tools for models, and which tools are let through."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from tests.cases import every
from toolwire.servertools.source import is_allowed, offered_name

FITS = re.compile(r"[a-zA-Z0-9_-]{1,64}")
NAMES = st.text(max_size=200) | st.from_regex(FITS, fullmatch=True)


@given(NAMES, st.from_regex(r"[a-zA-Z0-9_-]{0,32}", fullmatch=True))
def test_every_name_becomes_one_that_models_take(name: str, prefix: str) -> None:
    offered = offered_name(name, prefix)
    assert FITS.fullmatch(offered)
    assert offered.startswith(prefix)
    if FITS.fullmatch(prefix + name):
        assert offered == prefix + name


@given(st.sets(NAMES, min_size=2, max_size=30))
def test_two_names_stay_two(names: set[str]) -> None:
    assert len({offered_name(name) for name in names}) == len(names)


@every(
    ("name", "offered"),
    [
        ("read_file", "read_file"),
        ("a.b/c d", "a_b_c_d_"),
        ("größe", "gr_e_"),
        ("", "_"),
        ("n" * 200, "n" * 55 + "_"),
        ("\ud800", "__"),
    ],
)
def test_what_names_look_like(name: str, offered: str) -> None:
    assert re.fullmatch(re.escape(offered) + r"([0-9a-f]{8})?", offered_name(name))


@every(
    ("allow", "deny", "kept"),
    [
        (["*"], [], {"read_file", "write_file", "Read"}),
        (["read_*"], [], {"read_file"}),
        (["read_file", "Read"], ["R*"], {"read_file"}),
        (["*"], ["*_file"], {"Read"}),
        ([], [], set()),
    ],
)
def test_allowed_and_denied(allow: list[str], deny: list[str], kept: set[str]) -> None:
    names = {"read_file", "write_file", "Read"}
    assert {name for name in names if is_allowed(name, allow, deny)} == kept
