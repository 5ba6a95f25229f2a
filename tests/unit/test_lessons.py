"""Lessons that refusals teach: for whom they count, and for how long (R33.6)."""

from __future__ import annotations

from dataclasses import replace

from toolwire.model import Constraint, ModelRequest, ToolSpec
from toolwire.upstream.pool.concession_retries import find_concessions
from toolwire.upstream.pool.constraint_retries import allows, constraint_key
from toolwire.upstream.pool.lessons import MOST, Lessons
from toolwire.upstream.servers.concessions import NONE, Concessions


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_lesson_counts_for_whom_it_was_taught() -> None:
    lessons = Lessons(60, Clock())
    assert not lessons
    lessons.learn("a", "m", "images")
    assert lessons
    assert lessons.knows("a", "m", "images")
    assert not lessons.knows("b", "m", "images")
    assert not lessons.knows("a", "other", "images")
    assert not lessons.knows("a", "m", "files")
    assert lessons.shown() == {"m": {"images": "some"}}


def test_a_second_owner_makes_it_one_for_all() -> None:
    """The same owner again is no second opinion, nor is another owner's lesson of another value."""
    lessons = Lessons(60, Clock())
    for owner, value in (("a", "top_k"), ("a", "top_k"), ("b", "seed")):
        lessons.learn(owner, "m", "sampling", value)
        assert lessons.values("c", "m", "sampling") == []
    lessons.learn("b", "m", "sampling", "top_k")
    assert lessons.values("c", "m", "sampling") == ["top_k"]
    assert lessons.values("b", "m", "sampling") == ["top_k", "seed"]
    assert lessons.shown() == {"m": {"sampling": "all"}}


def test_it_is_forgotten_in_time_and_an_old_opinion_is_none() -> None:
    lessons = Lessons(60, clock := Clock())
    lessons.learn("a", "m", "images")
    clock.now += 59
    assert lessons.knows("a", "m", "images")
    lessons.learn("b", "m", "images")
    assert lessons.knows("c", "m", "images")
    clock.now += 2
    assert not lessons.knows("c", "m", "images")
    assert not lessons.knows("a", "m", "images")
    assert lessons.knows("b", "m", "images")
    clock.now += 60
    assert lessons.shown() == {}


def test_not_without_end() -> None:
    lessons = Lessons(60, clock := Clock())
    lessons.learn("a", "m", "images")
    for number in range(MOST + 5):
        lessons.learn("a", "m", "constraint", number)
    assert not lessons.knows("a", "m", "constraint", 0)
    assert lessons.knows("a", "m", "constraint", MOST + 4)
    assert len(lessons.values("a", "m", "constraint")) < MOST
    assert lessons.knows("a", "m", "images"), "one kind does not drive out another"
    clock.now += 61
    lessons.learn("b", "m", "files")
    assert lessons.values("a", "m", "constraint") == []
    assert lessons.knows("b", "m", "files")


def test_concessions_are_read_from_lessons() -> None:
    lessons = Lessons(60, Clock())
    request = ModelRequest("m", ())
    assert find_concessions(lessons, "a", request) is NONE
    lessons.learn("a", "m", "images")
    lessons.learn("a", "m", "max_tokens", 4096)
    lessons.learn("a", "m", "max_tokens", 2048)
    lessons.learn("a", "m", "effort", "low high")
    lessons.learn("a", "m", "sampling", "top_k")
    lessons.learn("a", "m", "sampling", "streamed tools")
    found = find_concessions(lessons, "a", request)
    assert found == Concessions(no_images=True, most_tokens=2048, efforts=("low", "high"), without=frozenset({"top_k"}))
    assert find_concessions(lessons, "b", request) is NONE
    found = find_concessions(lessons, "a", replace(request, tools=(ToolSpec("look", "", {}),)))
    assert found.without == {"top_k", "streamed"}, "streams of answers to requests with tools"


def test_a_server_that_takes_some_constraints_is_spared_only_those_it_refused() -> None:
    lessons = Lessons(60, Clock())
    one, other = Constraint("one", ()), Constraint("", (), {"type": "structural_tag"})
    lessons.learn("a", "m", "constraint", constraint_key(one))
    lessons.learn("a", "m", "constraints")
    assert [allows(lessons, each, "a", "m") for each in (one, other)] == [False, False]
    assert [allows(lessons, each, "b", "m") for each in (one, other)] == [True, True]
    lessons.takes_constraints = True
    assert [allows(lessons, each, "a", "m") for each in (one, other)] == [False, True]
    same = Constraint("one", ())
    assert not allows(lessons, same, "a", "m")
