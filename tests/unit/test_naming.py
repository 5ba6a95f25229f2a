"""A whole answer that is kept is named as its events would be."""

from __future__ import annotations

from dataclasses import replace
from unittest import mock

from hypothesis import given

from tests.cases import examples
from tests.strategies import rich_replies
from toolwire.folding import fold, unfold
from toolwire.middlewares.conversation import Naming
from toolwire.model import ModelReply


@examples(0.3)
@given(rich_replies)
def test_a_whole_answer_is_named_as_its_events_are(reply: ModelReply) -> None:
    reply = fold(unfold(reply))
    stage = Naming("resp_1")
    with mock.patch("time.time", return_value=7.5):
        named = stage.whole(reply)
        assert named == fold(stage.feed(unfold(reply)))
    assert named == replace(reply, id="resp_1", extra={**reply.extra, "completed_at": 7})
