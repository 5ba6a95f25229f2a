"""Corners of the header that names the gateways a request came through."""

from __future__ import annotations

import pytest
from multidict import CIMultiDict, CIMultiDictProxy

from tests.cases import every
from toolwire.errors import BackendFault
from toolwire.upstream.servers.hops import HEADER, MOST, came_through

OWN = "0" * 16
OTHERS = [f"{number:016x}" for number in range(1, MOST + 2)]


def through(*fields: str) -> str:
    return came_through(CIMultiDictProxy(CIMultiDict([(HEADER, field) for field in fields])), OWN)


@every("fields", [(), ("",), ("x",), (OTHERS[0].upper() + "G",), (f"{OTHERS[0]};{OTHERS[1]}",), (OWN[1:],)])
def test_what_has_not_the_form_goes_no_further(fields: tuple[str, ...]) -> None:
    assert through(*fields) == ""


def test_others_are_told_of_in_their_order_and_once() -> None:
    assert through(f"{OTHERS[1]}, {OTHERS[0]},{OTHERS[1]}") == f"{OTHERS[1]}, {OTHERS[0]}"
    assert through(OTHERS[1], OTHERS[0]) == f"{OTHERS[1]}, {OTHERS[0]}"


@every("fields", [(OWN,), (f"{OTHERS[0]}, {OWN}",), (f"{OWN},{OTHERS[0]}",), (OTHERS[0], OWN)])
def test_the_own_name_is_a_circle(fields: tuple[str, ...]) -> None:
    with pytest.raises(BackendFault) as caught:
        through(*fields)
    assert caught.value.code == "backend_loop"


def test_too_many_are_one_too() -> None:
    assert through(", ".join(OTHERS[:MOST])) == ", ".join(OTHERS[:MOST])
    with pytest.raises(BackendFault):
        through(", ".join(OTHERS[: MOST + 1]))
