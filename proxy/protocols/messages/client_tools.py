"""The client-run tools of Messages by type (R28.5), with descriptions and parameters from the typed models of the
`anthropic` package and the published pages.

Rules:

1. A type is the name of a family and a version. An unlisted version counts as the latest listed one before it, so a new
   version is taught like the newest known one.
2. A toolset is one entry of `tools` and stands for many tools: each is a `ToolSpec` in the namespace that its calls
   name (`toolset_name`).
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from typing import Any, Final

from ...model import EMPTY, ToolSpec
from ..shared.client_tools import Published, integer, integers, schema, several, text, word
from ..shared.wire import fields_in

PROTOCOL: Final = "messages"

_TYPE: Final = re.compile(r"(bash|text_editor|memory|computer|computer_toolset|browser_toolset)_([0-9]{8})")

# --- commands and files ---------------------------------------------------------------------------------------------

_BASH: Final = Published(
    "bash",
    "Run a command in a bash shell that stays open between calls: its folder, variables and background jobs are kept. "
    "The result is what the command printed. Commands that wait for input are not possible.",
    schema(
        {"command": text("The command to run.")},
        {"restart": {"type": "boolean", "description": "True to restart the shell, after it stopped answering."}},
    ),
)

_PATH: Final = {"path": text("Absolute path of the file or folder.")}
_VIEW_RANGE: Final = {
    "view_range": integers(2, "For `view` of a file: the first and the last line, counted from 1; -1 is the end.")
}
_EDITS: Final = {
    "file_text": text("For `create`: the whole text of the file."),
    "old_str": text("For `str_replace`: the text to replace. It must occur in the file exactly once, with all blanks."),
    "new_str": text("For `str_replace`: the text to put in its place."),
    "insert_line": integer("For `insert`: the line behind which the text is put; 0 is the beginning."),
}
_INSERTED: Final = {"insert_text": text("For `insert`: the text to insert.")}


def _editor(name: str, commands: str, inserted: Mapping[str, Any]) -> Published:
    undo = " `undo_edit` takes back the last edit of a file." if "undo_edit" in commands else ""
    return Published(
        name,
        "View and edit text files. `view` shows a file with line numbers, or lists a folder. `create` writes a new "
        f"file. `str_replace` replaces a text. `insert` inserts a text behind a line.{undo}",
        schema({"command": word(commands, "What to do."), **_PATH}, {**_EDITS, **inserted, **_VIEW_RANGE}),
    )


_EDITED_IN_LINE: Final = {"new_str": text("For `str_replace` and `insert`: the new text.")}

_MEMORY: Final = Published(
    "memory",
    "Keep notes in files under `/memories` that outlast this conversation. Look there with `view` before starting, and "
    "write down what will be needed later. `view` shows a file, or lists a folder. `create` writes a file. "
    "`str_replace` replaces a text. `insert` inserts a text behind a line. `delete` removes a file or folder. `rename` "
    "moves one.",
    schema(
        {"command": word("view create str_replace insert delete rename", "What to do.")},
        {
            "path": text("For all but `rename`: path of the file or folder, which begins with `/memories`."),
            **_EDITS,
            **_INSERTED,
            "old_path": text("For `rename`: the path now."),
            "new_path": text("For `rename`: the path afterwards."),
            **_VIEW_RANGE,
        },
    ),
)

# --- a computer -----------------------------------------------------------------------------------------------------

_FIRST_ACTIONS: Final = (
    "key type mouse_move left_click left_click_drag right_click middle_click double_click screenshot cursor_position"
)
_ACTIONS: Final = f"{_FIRST_ACTIONS} hold_key left_mouse_down left_mouse_up triple_click scroll wait"
_POINT: Final = "x and y in pixels, from the left and the upper edge."
_DIRECTIONS: Final = "up down left right"
_KEYS: Final = "Keys are named as in `Return`, `Tab`, `Page_Down`, `ctrl+s`."
_FIRST_FIELDS: Final = {
    "coordinate": integers(2, f"For clicks and moves: {_POINT}"),
    "text": text(f"For `type`: the text. For `key`: the key or combination. {_KEYS}"),
}
_FIELDS: Final = {
    "coordinate": integers(2, f"For clicks, moves and `scroll`: {_POINT} Clicks without it are where the cursor is."),
    "start_coordinate": integers(2, f"For `left_click_drag`: where it begins, {_POINT}"),
    "text": text(
        "For `type`: the text. For `key` and `hold_key`: the key or combination. For clicks and `scroll`: keys that are "
        f"held meanwhile. {_KEYS}"
    ),
    "scroll_direction": word(_DIRECTIONS, "For `scroll`."),
    "scroll_amount": integer("For `scroll`: steps of the wheel."),
    "duration": {"type": "number", "description": "For `hold_key` and `wait`: seconds."},
}
_REGION: Final = {"region": integers(4, "For `zoom`: x and y of two corners, the upper left and the lower right one.")}
_ABOUT_COMPUTER: Final = (
    "Use a computer by its screen, mouse and keyboard. Take a screenshot first, and after each action that may have "
    "changed something, to see the result. Click on the middle of things."
)


def _computer(actions: str, fields: Mapping[str, Any]) -> Published:
    return Published("computer", _ABOUT_COMPUTER, schema({"action": word(actions, "What to do.")}, fields))


# --- toolsets -------------------------------------------------------------------------------------------------------

_COORDINATE: Final = {"coordinate": integers(2, _POINT)}
_HELD: Final = {"text": text("Keys that are held meanwhile, such as `ctrl+shift`.")}
_KEY: Final = {"text": text(f"The key or combination. {_KEYS}")}
_SECONDS: Final = {"duration": integer("Seconds.")}
_TYPED: Final = {"text": text("The text.")}
_TIMES: Final = {"repeat": integer("How many times; 1 if left out.")}
_TURNS: Final = {"scroll_direction": word(_DIRECTIONS, "Where to.")}
_STEPS: Final = {"scroll_amount": integer("Steps of the wheel.")}
_CORNERS: Final = {"region": integers(4, "x and y of two corners, the upper left and the lower right one.")}


def _tools(*tools: tuple[str, str, Mapping[str, Any], Mapping[str, Any]]) -> tuple[Published, ...]:
    return tuple(Published(name, about, schema(required, optional)) for name, about, required, optional in tools)


def _clicks(where: str, required: Mapping[str, Any], optional: Mapping[str, Any]) -> Iterator[Any]:
    names = ("left_click", "Click"), ("right_click", "Click with the right button"), ("middle_click", "Middle-click")
    for name, about in (*names, ("double_click", "Double-click"), ("triple_click", "Triple-click")):
        yield name, f"{about} {where}.", required, optional


_COMPUTER_SET: Final = _tools(
    ("screenshot", "Take a screenshot of the screen.", EMPTY, EMPTY),
    ("zoom", "Take a larger screenshot of a part of the screen.", _CORNERS, EMPTY),
    *_clicks("at a point, or where the cursor is", EMPTY, {**_COORDINATE, **_HELD}),
    (
        "left_click_drag",
        "Drag from `start_coordinate` to `coordinate`.",
        {"start_coordinate": integers(2, _POINT), **_COORDINATE},
        _HELD,
    ),
    ("mouse_move", "Move the cursor without a click.", _COORDINATE, EMPTY),
    ("left_mouse_down", "Press the left button where the cursor is, and hold it.", EMPTY, EMPTY),
    ("left_mouse_up", "Let go of the left button.", EMPTY, EMPTY),
    ("cursor_position", "Get the position of the cursor.", EMPTY, EMPTY),
    ("scroll", "Scroll at a point, or where the cursor is.", {**_TURNS, **_STEPS}, {**_COORDINATE, **_HELD}),
    ("type", "Type a text.", _TYPED, EMPTY),
    ("key", "Press a key or a combination of keys.", _KEY, _TIMES),
    ("hold_key", "Hold a key or a combination of keys for some time.", {**_KEY, **_SECONDS}, EMPTY),
    ("wait", "Wait for some time.", _SECONDS, EMPTY),
)

_MODIFIERS: Final = {"modifiers": text("Keys that are held meanwhile, such as `ctrl+shift`.")}
_TAB: Final = {"tab_id": text("The tab; the active one if left out.")}
_REF: Final = schema({"type": word("ref", "A reference."), "ref": text("As `read_page` and `find` give it: `ref_7`.")})
_PLACE: Final = schema(
    {
        "type": word("coordinate", "A point."),
        "x": integer("Pixels from the left."),
        "y": integer("Pixels from the top."),
    }
)
_ELEMENT: Final = {"target": _REF}
_AT: Final = {"target": _PLACE}
_ANY_TARGET: Final = {"target": {"anyOf": [_REF, _PLACE], "description": "An element or a point."}}
_PAUSE: Final = {"duration": {"type": "number", "description": "Seconds."}}
_TEXTS: Final = {"type": "string"}

_BROWSER_SET: Final = _tools(
    ("navigate", "Open an address, or go `back`, `forward` or `reload`.", {"url": text("The address.")}, _TAB),
    ("list_tabs", "List the open tabs with their ids, titles and addresses.", EMPTY, EMPTY),
    ("new_tab", "Open an empty tab; the result is its id.", EMPTY, EMPTY),
    ("switch_tab", "Make a tab the active one.", {"tab_id": text("The tab.")}, EMPTY),
    ("close_tab", "Close a tab.", {"tab_id": text("The tab.")}, EMPTY),
    (
        "read_page",
        "Get the elements of the page as a tree, with references for other actions.",
        EMPTY,
        {
            "filter": word("all interactive", "Which elements."),
            "depth": integer("How deep the tree is."),
            "ref": text("The element to begin at."),
            **_TAB,
        },
    ),
    ("get_page_text", "Get the text of the page.", EMPTY, _TAB),
    ("read_console", "Get what the page wrote to the console since it was last read.", EMPTY, _TAB),
    ("read_network", "Get the requests that the page made since they were last read.", EMPTY, _TAB),
    ("find", "Find elements by a description in words.", {"query": text("The description.")}, _TAB),
    (
        "form_input",
        "Set an element of a form: a text, an option, or true or false for a checkbox.",
        {**_ELEMENT, "value": {"type": ["string", "number", "boolean"], "description": "The value."}},
        _TAB,
    ),
    (
        "file_upload",
        "Choose files in an element for files.",
        _ELEMENT,
        {"paths": several(_TEXTS, "Paths of files."), "document_ids": several(_TEXTS, "Ids of documents."), **_TAB},
    ),
    ("scroll_to", "Scroll until an element can be seen.", _ELEMENT, _TAB),
    ("screenshot", "Take a screenshot of the page.", EMPTY, _TAB),
    ("zoom", "Take a larger screenshot of a part of the page.", _CORNERS, _TAB),
    *_clicks("on an element or at a point", _ANY_TARGET, {**_MODIFIERS, **_TAB}),
    ("hover", "Move the cursor to an element or a point.", _ANY_TARGET, _TAB),
    ("left_click_drag", "Drag from one point to another.", {"from": _PLACE, **_AT}, _TAB),
    ("left_mouse_down", "Press the left button at a point, and hold it.", _AT, _TAB),
    ("left_mouse_up", "Let go of the left button at a point.", _AT, _TAB),
    ("mouse_move", "Move the cursor to a point.", _AT, _TAB),
    ("scroll", "Scroll at a point.", {**_AT, **_TURNS}, {**_STEPS, **_TAB}),
    ("type", "Type a text.", _TYPED, _TAB),
    ("key", "Press a key or a combination of keys.", _KEY, {**_TIMES, **_TAB}),
    ("hold_key", "Hold a key or a combination of keys for some time.", {**_KEY, **_PAUSE}, _TAB),
    ("wait", "Wait for some time.", _PAUSE, _TAB),
    ("javascript_exec", "Run JavaScript in the page; the result is its last value.", _TYPED, _TAB),
)

# --- the table ------------------------------------------------------------------------------------------------------

VERSIONS: Final[Mapping[str, Mapping[str, Published]]] = {
    "bash": {"20241022": _BASH, "20250124": _BASH},
    "text_editor": {
        "20241022": _editor("str_replace_editor", "view create str_replace insert undo_edit", _EDITED_IN_LINE),
        "20250124": _editor("str_replace_editor", "view create str_replace insert undo_edit", _EDITED_IN_LINE),
        "20250429": _editor("str_replace_based_edit_tool", "view create str_replace insert", _INSERTED),
        "20250728": _editor("str_replace_based_edit_tool", "view create str_replace insert", _INSERTED),
    },
    "memory": {"20250818": _MEMORY},
    "computer": {
        "20241022": _computer(_FIRST_ACTIONS, _FIRST_FIELDS),
        "20250124": _computer(_ACTIONS, _FIELDS),
        "20251124": _computer(f"{_ACTIONS} zoom", {**_FIELDS, **_REGION}),
    },
}
"""Single tools by family and version."""
TOOLSETS: Final[Mapping[str, tuple[Published, ...]]] = {"computer": _COMPUTER_SET, "browser": _BROWSER_SET}
"""Toolsets by the `toolset_name` of their calls."""


def client_tools(tool: Mapping[str, Any]) -> tuple[ToolSpec, ...]:
    """Returns the functions that a client tool stands for; none if its type is not listed."""
    match = _TYPE.fullmatch(str(tool.get("type")))
    if match is None:
        return ()
    family, version = match[1], match[2]
    if family.endswith("_toolset"):
        return tuple(_members(tool, family.removesuffix("_toolset")))
    versions = sorted(VERSIONS[family])
    known = VERSIONS[family][versions[max(bisect_right(versions, version) - 1, 0)]]
    name = tool.get("name")
    name = name if isinstance(name, str) else known.name
    return (ToolSpec(name, known.description + _screen(tool), known.parameters, extra={PROTOCOL: tool}),)


def _screen(tool: Mapping[str, Any]) -> str:
    width, height = tool.get("display_width_px"), tool.get("display_height_px")
    return f" The screen is {width} pixels wide and {height} high." if type(width) is type(height) is int else ""


def _members(tool: Mapping[str, Any], name: str) -> Iterator[ToolSpec]:
    configs = fields_in(tool.get("configs"))
    for member in TOOLSETS[name]:
        config = configs.get(member.name)
        if not isinstance(config, Mapping) or config.get("enabled") is not False:
            yield ToolSpec(member.name, member.description, member.parameters, namespace=name, extra={PROTOCOL: tool})
