"""Marks of a family's framing vanish where they frame something, and are text in the middle of a text (R30.3)."""

from __future__ import annotations

from types import ModuleType

from tests.cases import every
from tests.options import route_options
from tests.parse.reading import WHOLE, blocks, in_pieces, scanned
from toolwire.scanner import open_scanner

MENTIONS = [
    ("gigachat", "Use </s> here to end"),
    ("gigachat", "Use </s>\nhere to end"),
    ("gigachat", "Both </s>  </s> mean it"),
    ("gigachat", "Use </s> <"),
    ("harmony", "A message ends with <|end|> and an answer with <|return|>, they say."),
    ("harmony", "Write <|start|>assistant in front."),
    ("muse", "A turn ends with <|eot|>; a message with <|eom|>, mostly."),
    ("kimi_k2", "A section is <|tool_calls_section_begin|> and <|tool_calls_section_end|>; ids count."),
    ("kimi_k2", "The last is <|tool_calls_section_end|>, which closes."),
    ("kimi_k3", "It closes with <|close|>message<|sep|> always."),
    ("cohere", "Its text stands from <|START_TEXT|> up to <|END_TEXT|> in it."),
    ("ernie", "Text stands from <response> up to </response> each time."),
    ("apriel", "Say [END FINAL RESPONSE] last, please."),
    ("hyperclovax", "A turn ends with <|im_end|> in all of them."),
    ("inkling", "It is over with <|end_message|> in that one."),
    ("harmony", "What it says stands behind <|channel|>final<|message|> in it."),
    ("harmony", "Before a call it says <|channel|>commentary<|message|>, now and then."),
    ("inkling", "It writes <|content_text|> before text."),
    ("muse", "It is <|start|>assistant to=user<|message|> there."),
    (
        "plamo3",
        "First <|plamo:begin_tool_requests:plamo|>, then <|plamo:begin_tool_request:plamo|> up to"
        " <|plamo:end_tool_request:plamo|> each.",
    ),
    ("step3", "First <｜tool_calls_begin｜>, then <｜tool_call_begin｜> up to <｜tool_call_end｜> each."),
]
CALL = 'function call<|role_sep|>\n{"name":"f","arguments":{}}'
FRAMES: list[tuple[str, str, list[str]]] = [
    ("gigachat", "Well.</s>", ["Well."]),
    ("gigachat", "Well. </s> </s>\n", ["Well."]),
    ("gigachat", "</s>Well", ["Well"]),
    ("gigachat", f"Well.</s>\n<|message_sep|>{CALL}", ["Well.", "f"]),
    ("gigachat", f"Well.{' ' * 300}</s>{' ' * 300}no", ["Well.", " no"]),
    ("harmony", "One.<|end|><|start|>assistant<|channel|>final<|message|>Two.<|return|>", ["One.", "Two."]),
    ("harmony", "One.<|channel|>commentary<|message|>Two.", ["One.", "Two."]),
    ("harmony", "One.<|channel|>final<|message|>Two.", ["One.", "Two."]),
    ("muse", "One.<|start|>assistant to=user<|message|>Two.", ["One.", "Two."]),
    ("muse", "One.<|eom|><|start|>assistant to=user<|message|>Two.<|eot|>", ["One.", "Two."]),
    ("ernie", "<response>One.</response>\n<response>Two.</response>", ["One.", "\nTwo."]),
    ("kimi_k2", "One.<|tool_calls_section_begin|>no<|tool_calls_section_end|>", ["One.no"]),
]
"""Format, answer, texts and names of calls."""


def read(twin: ModuleType, format: str, text: str, size: int, tools: tuple[str, ...] = ("f",)) -> list[str]:
    """Texts, and names of calls."""
    found = blocks(scanned(twin, format, tools, in_pieces(text, size)))
    return [(block.name or "") if block.is_call else block.text for block in found]


@every("size", [WHOLE, 1, 7])
@every("tools", [("f",), ()])
@every(("format", "text"), MENTIONS)
def test_a_mark_with_words_around_it_is_text(
    twin: ModuleType, format: str, text: str, tools: tuple[str, ...], size: int
) -> None:
    assert read(twin, format, text, size, tools) == [text]


@every("size", [WHOLE, 1, 7])
@every(("format", "text", "parts"), FRAMES)
def test_a_mark_that_frames_something_vanishes(
    twin: ModuleType, format: str, text: str, parts: list[str], size: int
) -> None:
    assert [part.strip() for part in read(twin, format, text, size)] == [part.strip() for part in parts]


def test_a_mark_waits_until_what_follows_is_known(twin: ModuleType) -> None:
    scanner = open_scanner("gigachat", ["f"], options=route_options(), scanner=twin.CallScanner)
    for text, held in (("Use </s>", " </s>"), (" ", " </s> "), ("h", "")):
        scanner.feed(text)
        assert scanner.held == held
