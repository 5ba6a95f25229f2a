"""Names of tolerances: oddities in a client's request, or things its model server does not take, that do not fail a
request (R28.4).

Each is reported once per request: a warning in the log, the field `tolerances` of the access line, a count in
`toolwire_tolerated_total`. The names are stable; docs/reference/tolerated.md describes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

ARGUMENTS: Final = "arguments_settled"
UNANSWERED: Final = "call_without_result"
NO_CALL: Final = "result_without_call"
NO_ID: Final = "result_without_id"
REPEATED: Final = "result_repeated"
MOVED: Final = "result_moved"
INPUT_REPEATED: Final = "input_repeated"
CONTENT: Final = "content_mended"
HALVES: Final = "half_characters"
IMAGES: Final = "images_omitted"
IMAGES_MOVED: Final = "images_moved"
FILES: Final = "files_omitted"
FILES_TEXT: Final = "files_as_text"
MANY_TOOLS: Final = "many_tools"
UNCHECKED: Final = "schema_unchecked"
NAMES: Final = "names_shortened"
TEMPERATURE: Final = "temperature_clamped"
TOP_P: Final = "top_p_clamped"
MAX_TOKENS: Final = "max_tokens_clamped"
EFFORT: Final = "effort_clamped"
REFUSED: Final = "parameter_refused"

TOLERANCES: Final[Mapping[str, str]] = {
    ARGUMENTS: "The arguments of an earlier call were no JSON object.",
    UNANSWERED: "An earlier call had no result, which the model server demands.",
    NO_CALL: "A result had no earlier call: it is shown as text.",
    NO_ID: "A result named no call: it is that of the first call of its turn that had none.",
    REPEATED: "A call had more than one result: the later ones are shown as text.",
    MOVED: "A result did not stand right behind its call: it was moved there.",
    INPUT_REPEATED: "Items before the results of calls were those of an earlier turn: they are left out.",
    CONTENT: "The content of a message was null or missing.",
    HALVES: "The body had halves of surrogate pairs: U+FFFD stands in their place.",
    IMAGES: "Images for a model that takes none: a note stands in their place.",
    IMAGES_MOVED: "Images in results, for a server whose results are text: they stand in a user message behind them.",
    FILES: "Files for a model server that takes none: a note stands in their place.",
    FILES_TEXT: "Files for a model server that takes none: their text stands in their place.",
    MANY_TOOLS: "More tools than `limits.tools_warn`.",
    UNCHECKED: "A tool's schema, or a part of it, cannot be checked: it is taught as it is.",
    NAMES: "Names of tools that are too long for the model server were sent in a short form.",
    TEMPERATURE: "A temperature beyond what the model server takes.",
    TOP_P: "A `top_p` beyond what the model server takes.",
    MAX_TOKENS: "A limit on the answer beyond what the model server takes.",
    EFFORT: "An effort that the model server does not know.",
    REFUSED: "The model server refused a sampling parameter and was asked again without it.",
}
"""All tolerances, with their meaning."""
