"""Tables of cases inside one test (`tests.cases`)."""

from __future__ import annotations

import pytest

from tests.cases import every


def test_all_cases_run_although_one_skips() -> None:
    ran: list[int] = []

    @every("number", [1, 2, 3])
    def test(number: int) -> None:
        ran.append(number)
        if number < 3:
            pytest.skip(f"not {number}")

    with pytest.raises(pytest.skip.Exception, match=r"^not 1; not 2$"):
        test()
    assert ran == [1, 2, 3]


async def test_a_case_that_fails_ends_the_test_and_is_named() -> None:
    ran: list[int] = []

    @every("number", [1, 2])
    async def test(number: int) -> None:
        ran.append(number)
        raise ValueError

    with pytest.raises(ValueError) as caught:  # its note is what counts
        await test()
    assert ran == [1]
    assert caught.value.__notes__ == ["case: number=1"]


def test_without_cases_it_is_skipped() -> None:
    @every("number", [])
    def test(number: int) -> None:
        raise AssertionError

    with pytest.raises(pytest.skip.Exception):
        test()
