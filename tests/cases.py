"""Tables of cases inside one test."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest
from hypothesis import settings


def every(names: str | tuple[str, ...], cases: Iterable[Any]) -> Callable[[Any], Any]:
    """Runs one test for every case, in order. Takes the arguments of `pytest.mark.parametrize` and stacks like it.

    For quick cases without a fixture: pytest needs longer for a test of its own than such a case takes. The first case
    that fails ends the test, and a note of the error names it. A case that skips does not: the others run, and then the
    test is skipped with its reason. Without any case the test is skipped.
    """
    wanted = tuple(names.replace(",", " ").split()) if isinstance(names, str) else names
    table = [dict(zip(wanted, values_of(case, len(wanted)), strict=True)) for case in cases]

    def decorate(test: Any) -> Any:
        @functools.wraps(test)
        def run(**given: Any) -> None:
            with skipping_at_the_end() as skips:
                for case in table or no_cases():
                    with named(case), skips():
                        test(**given, **case)

        @functools.wraps(test)
        async def run_async(**given: Any) -> None:
            with skipping_at_the_end() as skips:
                for case in table or no_cases():
                    with named(case), skips():
                        await test(**given, **case)

        signature = inspect.signature(test)
        others = [parameter for name, parameter in signature.parameters.items() if name not in wanted]
        runner: Any = run_async if inspect.iscoroutinefunction(test) else run
        runner.__signature__ = signature.replace(parameters=others)
        return runner

    return decorate


def examples(share: float) -> settings:
    """A share of the usual number of examples, so more of them where new ones are asked for."""
    return settings(max_examples=round(settings().max_examples * share))


def first_and_in_turn(rows: Iterable[Any], columns: Iterable[Any]) -> list[tuple[Any, Any]]:
    """The first row with every column, and each other row with one, in turn."""
    wanted = list(columns)
    return [
        (row, column) for n, row in enumerate(rows) for m, column in enumerate(wanted) if n == 0 or n % len(wanted) == m
    ]


def values_of(case: Any, count: int) -> tuple[Any, ...]:
    """The values of one case, which may be a `pytest.param`."""
    if hasattr(case, "marks"):
        return tuple(case.values)
    return (case,) if count == 1 else tuple(case)


def no_cases() -> list[dict[str, Any]]:
    """Skips a test whose table is empty, as where recorded requests are not there."""
    pytest.skip("there are no cases")


@contextmanager
def skipping_at_the_end() -> Iterator[Callable[[], AbstractContextManager[None]]]:
    """Yields a context for each case. After the last one the test is skipped if a case was."""
    reasons: dict[str, None] = {}

    @contextmanager
    def one() -> Iterator[None]:
        try:
            yield
        except pytest.skip.Exception as skipped:
            reasons[str(skipped)] = None

    yield one
    if reasons:
        pytest.skip("; ".join(reasons))


@contextmanager
def named(case: dict[str, Any]) -> Iterator[None]:
    """Adds the case to an error."""
    try:
        yield
    except BaseException as error:
        error.add_note("case: " + ", ".join(f"{name}={value!r:.200}" for name, value in case.items()))
        raise
