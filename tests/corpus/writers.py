"""How models write calls, format by format: a second opinion on `proxy/formats`, which is not imported.

Every function writes the calls of one answer (or of one stretch of it) as the chat templates of its models do, see the
table of formats in docs/. `Style` holds what a model may do one way or another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tests.corpus.values import Call, Json, Number, write_json


@dataclass(frozen=True)
class Style:
    """`spaced`: spaces in JSON. `ascii`: everything else escaped. `reverse`: arguments before the name. `empty`: how no
    arguments are written. `variant`: one of the format's own, see `Format.variants`."""

    spaced: bool = True
    ascii: bool = False
    reverse: bool = False
    empty: str = "{}"
    variant: str = ""


Write = Callable[[Sequence[Call], Style], str]

# --- JSON ------------------------------------------------------------------------------------------------------------


def arguments(call: Call, style: Style) -> str:
    """The arguments as JSON."""
    return write_json(call.arguments, spaced=style.spaced, ascii=style.ascii)


def call_object(call: Call, style: Style, key: str = "arguments", *, quoted: bool = False) -> str:
    """`{"name": ..., "arguments": ...}`; `quoted`: the arguments as a string that holds JSON."""
    comma, colon = (", ", ": ") if style.spaced else (",", ":")
    name = f'"name"{colon}{write_json(call.name)}'
    if not call.arguments and style.empty == "absent":
        return "{" + name + "}"
    text = arguments(call, style) if call.arguments else style.empty
    if quoted and (call.arguments or style.empty == "{}"):
        text = write_json(text, ascii=style.ascii)
    members = [name, f'"{key}"{colon}{text}']
    return "{" + comma.join(reversed(members) if style.reverse else members) + "}"


def call_array(calls: Sequence[Call], style: Style, key: str = "arguments") -> str:
    """`[{"name": ..., "arguments": ...}, ...]`."""
    return "[" + (", " if style.spaced else ",").join(call_object(call, style, key) for call in calls) + "]"


def sentinel(calls: Sequence[Call], style: Style) -> str:
    around = "\n" if style.variant == "lines" else ""
    quoted = style.variant != "object"
    return "\n".join(
        f"<tool_call>{around}{call_object(call, style, quoted=quoted)}{around}</tool_call>" for call in calls
    )


def hermes(calls: Sequence[Call], style: Style) -> str:
    around, between = {"": ("\n", "\n"), "tight": ("", ""), "fence": ("\n", "\n"), "wide": (" \n ", "\n\n")}[
        style.variant
    ]
    fence = ("```json\n", "\n```") if style.variant == "fence" else ("", "")
    return between.join(
        f"<tool_call>{around}{fence[0]}{call_object(call, style)}{fence[1]}{around}</tool_call>" for call in calls
    )


def fenced_json(calls: Sequence[Call], style: Style) -> str:
    return f"```json\n{listed(calls, style)}\n```"


def bare_json(calls: Sequence[Call], style: Style) -> str:
    if style.variant == "one" or style.reverse:
        (call,) = calls
        return call_object(call, style)
    return listed(calls, style)


def listed(calls: Sequence[Call], style: Style) -> str:
    """`{"tool_calls": [...]}`; its elements may be written as OpenAI does."""
    colon = ": " if style.spaced else ":"
    objects = [call_object(call, style, quoted=style.variant == "quoted") for call in calls]
    if style.variant == "openai":
        objects = [f'{{"type"{colon}"function","function"{colon}{text}}}' for text in objects]
    if style.variant == "lines":
        return f'{{\n  "tool_calls": [\n    {("," + chr(10) + "    ").join(objects)}\n  ]\n}}'
    return f'{{"tool_calls"{colon}[{",".join(objects)}]}}'


def llama3_json(calls: Sequence[Call], style: Style) -> str:
    tag = "<|python_tag|>" if style.variant == "tag" else ""
    key = "arguments" if style.variant == "arguments" else "parameters"
    separator = ";" if style.variant == "tight" else "; "
    return tag + separator.join(call_object(call, style, key) for call in calls)


def mistral_array(calls: Sequence[Call], style: Style) -> str:
    return "[TOOL_CALLS]" + ("" if style.variant == "tight" else " ") + call_array(calls, style)


def mistral(calls: Sequence[Call], style: Style) -> str:
    """From tokenizer v11."""
    texts = []
    for call in calls:
        space = " " if style.variant == "space" else ""
        call_id = f"[CALL_ID]{call.id}" if call.id else ""
        texts.append(f"[TOOL_CALLS]{space}{call.name}{call_id}[ARGS]{arguments(call, style)}")
    return "".join(texts)


def deepseek_v3(calls: Sequence[Call], style: Style) -> str:
    texts = [
        f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>{call.name}\n```json\n{arguments(call, style)}\n```<｜tool▁call▁end｜>"
        for call in calls
    ]
    return "<｜tool▁calls▁begin｜>" + ("" if style.variant == "tight" else "\n").join(texts) + "<｜tool▁calls▁end｜>"


def deepseek_v31(calls: Sequence[Call], style: Style) -> str:
    texts = [
        f"<｜tool▁call▁begin｜>{call.name}<｜tool▁sep｜>{arguments(call, style)}<｜tool▁call▁end｜>" for call in calls
    ]
    return "<｜tool▁calls▁begin｜>" + ("\n" if style.variant == "lines" else "").join(texts) + "<｜tool▁calls▁end｜>"


def kimi_k2(calls: Sequence[Call], style: Style) -> str:
    space = " " if style.variant == "space" else ""
    section = "tool_call" if style.variant == "singular" else "tool_calls"
    line = "\n" if style.variant == "lines" else ""
    texts = [
        f"<|tool_call_begin|>{call.id}{space}<|tool_call_argument_begin|>{space}{arguments(call, style)}{space}"
        "<|tool_call_end|>"
        for call in calls
    ]
    return f"<|{section}_section_begin|>{line}" + line.join(texts) + f"{line}<|{section}_section_end|>"


def harmony(calls: Sequence[Call], style: Style) -> str:
    """The prompt ends with `<|start|>assistant`, which so is missing before the first message."""
    texts = []
    for call in calls:
        to = f" to=functions.{call.name}"
        kind = " json" if style.variant == "json" else "" if style.variant == "plain" else " <|constrain|>json"
        channel = "analysis" if style.variant == "analysis" else "commentary"
        if style.variant == "role":
            head = f"{to}<|channel|>{channel}<|constrain|>json"
        else:
            head = f"<|channel|>{channel}{to}{kind}"
        texts.append(f"{head}<|message|>{arguments(call, style)}<|call|>")
    return "<|start|>assistant".join(texts)


def granite(calls: Sequence[Call], style: Style) -> str:
    match style.variant:
        case "hermes":  # 4.x
            return hermes(calls, Style(style.spaced, style.ascii, style.reverse, style.empty))
        case "function_call":  # 20b-functioncalling
            return "\n".join(f"<function_call> {call_object(call, style)}" for call in calls)
        case "tag":  # 3.2, 3.3
            return "<tool_call>" + call_array(calls, style)
        case _:
            return "<|tool_call|>" + call_array(calls, style)


def phi4_mini(calls: Sequence[Call], style: Style) -> str:
    return "functools" + call_array(calls, style)


def xlam(calls: Sequence[Call], style: Style) -> str:
    array = call_array(calls, style)
    match style.variant:
        case "fence":
            return f"```json\n{array}\n```"
        case "mistral":
            return f"[TOOL_CALLS]{array}"
        case "tag":
            return f"<tool_call>{array}</tool_call>"
        case _:
            return array


def tool_calls_array(calls: Sequence[Call], style: Style) -> str:
    """Jamba and Hunyuan."""
    around = "" if style.variant == "tight" else "\n"
    return f"<tool_calls>{around}{call_array(calls, style)}{around}</tool_calls>"


def internlm(calls: Sequence[Call], style: Style) -> str:
    (call,) = calls
    key = "arguments" if style.variant == "arguments" else "parameters"
    around = "" if style.variant == "tight" else "\n"
    return f"<|action_start|><|plugin|>{around}{call_object(call, style, key)}{around}<|action_end|>"


def ernie(calls: Sequence[Call], style: Style) -> str:
    return "\n".join(f"<tool_call>\n{call_object(call, style)}\n</tool_call>" for call in calls)


# --- tagged text -----------------------------------------------------------------------------------------------------


def untyped(value: Json) -> str:
    """A value between tags: a text as it is, anything else as JSON."""
    return value if isinstance(value, str) else write_json(value)


def _qwen_inside(call: Call, style: Style) -> str:
    texts = []
    for key, value in call.arguments.items():
        close = "" if style.variant == "open_parameters" else "</parameter>\n"
        texts.append(f"<parameter={key}>\n{untyped(value)}\n{close}")
    return f"<function={call.name}>\n{''.join(texts)}</function>\n"


def qwen3_coder(calls: Sequence[Call], style: Style) -> str:
    opener = "" if style.variant == "no_opener" else "<tool_call>\n"
    text = "\n".join(f"{opener}{_qwen_inside(call, style)}</tool_call>" for call in calls)
    return text.replace("</function>\n</tool_call>", "</function></tool_call>") if style.variant == "tight" else text


def seed_oss(calls: Sequence[Call], style: Style) -> str:
    return "\n".join(f"<seed:tool_call>\n{_qwen_inside(call, style)}</seed:tool_call>" for call in calls)


def glm45(calls: Sequence[Call], style: Style) -> str:
    return "\n".join(
        f"<tool_call>{call.name}\n"
        + "".join(f"<arg_key>{k}</arg_key>\n<arg_value>{untyped(v)}</arg_value>\n" for k, v in call.arguments.items())
        + "</tool_call>"
        for call in calls
    )


def glm47(calls: Sequence[Call], style: Style) -> str:
    return "".join(
        f"<tool_call>{call.name}"
        + "".join(f"<arg_key>{k}</arg_key><arg_value>{untyped(v)}</arg_value>" for k, v in call.arguments.items())
        + "</tool_call>"
        for call in calls
    )


def minimax_m2(calls: Sequence[Call], style: Style) -> str:
    quote = {"": '"', "single": "'", "bare": "", "tight": '"'}[style.variant]
    line = "" if style.variant == "tight" else "\n"
    text = "".join(
        f"<invoke name={quote}{call.name}{quote}>{line}"
        + "".join(
            f"<parameter name={quote}{key}{quote}>{untyped(value)}</parameter>{line}"
            for key, value in call.arguments.items()
        )
        + f"</invoke>{line}"
        for call in calls
    )
    return f"<minimax:tool_call>{line}{text}</minimax:tool_call>"


def dsml(section: str, bar: str = "｜DSML｜") -> Write:
    """DeepSeek from V3.2, whose versions differ in the section's name; V4.1 has a space in every tag. GigaChat 3.5 with
    its own bar."""
    tag = bar + " " * section.startswith(" ")

    def write(calls: Sequence[Call], style: Style) -> str:
        line = "" if style.variant == "tight" else "\n"
        texts = []
        for call in calls:
            if style.variant == "json":
                inside = f"{arguments(call, style)}{line}"
            else:
                inside = "".join(
                    f'<{tag}parameter name="{key}" string="{"true" if isinstance(value, str) else "false"}">'
                    f"{untyped(value)}</{tag}parameter>{line}"
                    for key, value in call.arguments.items()
                )
            texts.append(f'<{tag}invoke name="{call.name}">{line}{inside}</{tag}invoke>{line}')
            if style.variant == "self" and not call.arguments:
                texts[-1] = f'<{tag}invoke name="{call.name}"/>{line}'
        return f"<{bar}{section}>{line}{''.join(texts)}</{bar}{section}>"

    return write


def step3(calls: Sequence[Call], style: Style) -> str:
    text = ("" if style.variant == "tight" else "\n").join(
        f'<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="{call.name}">'
        + "".join(
            f'<steptml:parameter name="{key}">{untyped(value)}</steptml:parameter>'
            for key, value in call.arguments.items()
        )
        + "</steptml:invoke><｜tool_call_end｜>"
        for call in calls
    )
    around = "" if style.variant == "tight" else "\n"
    return f"<｜tool_calls_begin｜>{around}{text}{around}<｜tool_calls_end｜>"


# --- own syntax ------------------------------------------------------------------------------------------------------


def python(value: Json, words: tuple[str, str, str] = ("True", "False", "None"), quote: str = "") -> str:
    """A Python literal; `words` for true, false and null, strings in `quote` or as `repr` does."""
    if isinstance(value, Number):
        return value.text
    if isinstance(value, str):
        if not quote:
            return repr(value)
        slashed = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t").replace(quote, "\\" + quote)
        return f"{quote}{slashed}{quote}"
    if isinstance(value, Mapping):
        items = (f"{python(k, words, quote)}: {python(v, words, quote)}" for k, v in value.items())
        return "{" + ", ".join(items) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(python(v, words, quote) for v in value) + "]"
    return words[2] if value is None else words[0 if value else 1]


def _python_call(call: Call, words: tuple[str, str, str] = ("True", "False", "None"), quote: str = "") -> str:
    return f"{call.name}({', '.join(f'{k}={python(v, words, quote)}' for k, v in call.arguments.items())})"


def pythonic(calls: Sequence[Call], style: Style) -> str:
    quote = '"' if style.variant in ("double", "raw_quotes") else ""
    text = "[" + ", ".join(_python_call(call, quote=quote) for call in calls) + "]"
    if style.variant == "raw_quotes":  # what models do, and what Python would not read
        text = text.replace('\\"', '"')
    return f"<|python_start|>{text}<|python_end|>" if style.variant == "tags" else text


def olmo3(calls: Sequence[Call], style: Style) -> str:
    words = ("true", "false", "null") if style.variant == "json_words" else ("True", "False", "None")
    return (
        "<function_calls>\n"
        + "".join(f"{_python_call(call, words, chr(34))}\n" for call in calls)
        + "</function_calls>"
    )


def lfm2(calls: Sequence[Call], style: Style) -> str:
    if style.variant == "json":
        return f"<|tool_call_start|>{call_array(calls, style)}<|tool_call_end|>"
    text = ", ".join(_python_call(call, quote='"' if style.variant == "" else "") for call in calls)
    return f"<|tool_call_start|>[{text}]<|tool_call_end|>"


def braces(quote: str) -> Callable[[Json], str]:
    """Gemma's values: strings between two `quote`, bare keys."""

    def value(given: Json) -> str:
        if isinstance(given, str):
            return f"{quote}{given}{quote}"
        if isinstance(given, Mapping):
            return "{" + ",".join(f"{k}:{value(v)}" for k, v in given.items()) + "}"
        if isinstance(given, list):
            return "[" + ",".join(map(value, given)) + "]"
        return write_json(given)

    return value


def gemma4(calls: Sequence[Call], style: Style) -> str:
    value = braces('<|"|>')
    return "".join(f"<|tool_call>call:{call.name}{value(call.arguments)}<tool_call|>" for call in calls)


def functiongemma(calls: Sequence[Call], style: Style) -> str:
    value = braces("<escape>")
    return "".join(f"<start_function_call>call:{call.name}{value(call.arguments)}<end_function_call>" for call in calls)


# --- the formats of 2026 ---------------------------------------------------------------------------------------------


def elements(section: str, prefix: str = "") -> Write:
    """`<invoke name=...>` in a section: dots and Muse."""

    def write(calls: Sequence[Call], style: Style) -> str:
        text = "".join(
            f'<{prefix}invoke name="{call.name}">\n'
            + "".join(
                f'<{prefix}parameter name="{key}">{untyped(value)}</{prefix}parameter>\n'
                for key, value in call.arguments.items()
            )
            + f"</{prefix}invoke>\n"
            for call in calls
        )
        return f"<{section}>\n{text}</{section}>"

    return write


def minicpm5(calls: Sequence[Call], style: Style) -> str:
    before, behind = ("<![CDATA[", "]]>") if style.variant == "cdata" else ("", "")
    return "\n".join(
        f'<function name="{call.name}">'
        + "".join(
            f'<param name="{key}">{before}{untyped(value)}{behind}</param>' for key, value in call.arguments.items()
        )
        + "</function>"
        for call in calls
    )


def minimax_m3(calls: Sequence[Call], style: Style) -> str:
    """What is no text as JSON: without a schema for each value nothing else says what it is."""
    prefix = "]<]minimax[>["
    text = "".join(
        f'{prefix}<invoke name="{call.name}">'
        + "".join(
            f"{prefix}<{key}>{untyped(value)}{prefix}</{key}>{style.variant}" for key, value in call.arguments.items()
        )
        + f"{prefix}</invoke>\n"
        for call in calls
    )
    return f"{prefix}<tool_call>\n{text}{prefix}</tool_call>"


def mimo(calls: Sequence[Call], style: Style) -> str:
    return "\n".join(
        f"<tool_call>\n<function={call.name}>\n"
        + "".join(f"<parameter={key}>{untyped(value)}</parameter>\n" for key, value in call.arguments.items())
        + "</function>\n</tool_call>"
        for call in calls
    )


def keys_and_values(
    call_tag: str, section: str = "", *, prefix: str = "", words: str = "arg", behind_name: str = "", line: str = ""
) -> Write:
    """A name, then keys and values, whose tags begin with `words`: GLM's relatives. A variant that begins with a colon
    is a suffix of every tag."""

    def write(calls: Sequence[Call], style: Style) -> str:
        suffix = style.variant if style.variant[:1] == ":" else ""

        def tag(word: str) -> str:
            return f"<{word}{suffix}>"

        key, value = f"{prefix}{words}_key", f"{prefix}{words}_value"
        text = line.join(
            f"{tag(call_tag)}{call.name}{tag(behind_name) if behind_name else ''}{line}"
            + "".join(
                f"{tag(key)}{k}{tag('/' + key)}{line}"
                + (
                    f"{tag(prefix + 'arg_type')}string{tag('/' + prefix + 'arg_type')}"
                    if style.variant == "typed"
                    else ""
                )
                + f"{tag(value)}{untyped(v)}{tag('/' + value)}{line}"
                for k, v in call.arguments.items()
            )
            + tag("/" + call_tag)
            for call in calls
        )
        return f"{tag(section)}{line}{text}{line}{tag('/' + section)}" if section else text

    return write


def solar_open2(calls: Sequence[Call], style: Style) -> str:
    return "\n".join(
        f"<|tool_call:start|>{call.name}\n"
        + "".join(
            f"<|tool_arg:start|>{key}<|tool_arg:value|>{untyped(value)}<|tool_arg:end|>\n"
            for key, value in call.arguments.items()
        )
        + "<|tool_call:end|>"
        for call in calls
    )


def kimi_k3(calls: Sequence[Call], style: Style) -> str:
    def kind(value: Json) -> str:
        kinds: dict[type, str] = {str: "string", bool: "boolean", Number: "number", list: "array", dict: "object"}
        return kinds.get(type(value), "null")

    text = "".join(
        f'<|open|>call tool="{call.name}" index="{index}"<|sep|>'
        + "".join(
            f'<|open|>argument key="{key}" type="{kind(value)}"<|sep|>{untyped(value)}<|close|>argument<|sep|>'
            for key, value in call.arguments.items()
        )
        + "<|close|>call<|sep|>"
        for index, call in enumerate(calls, 1)
    )
    return f"<|open|>tools<|sep|>{text}<|close|>tools<|sep|>"


def inkling(calls: Sequence[Call], style: Style) -> str:
    return "".join(
        f"<|message_model|>{call.name if style.variant == '' else ''}<|content_invoke_tool_json|>"
        f"{call_object(call, style, 'args')}<|end_message|>"
        for call in calls
    )


def plamo3(calls: Sequence[Call], style: Style) -> str:
    def around(what: str, text: str) -> str:
        return f"<|plamo:begin_{what}:plamo|>{text}<|plamo:end_{what}:plamo|>"

    head = "" if style.variant == "plain" else "<|plamo:constrain|>json<|plamo:msg|>"
    return around(
        "tool_requests",
        "".join(
            around(
                "tool_request",
                around("tool_name", call.name) + around("tool_arguments", head + arguments(call, style)),
            )
            for call in calls
        ),
    )


def functionary(calls: Sequence[Call], style: Style) -> str:
    """The prompt ends with `>>>`, which so is missing in front of what comes first; here only in a variant."""
    text = "\n".join(f">>>{call.name}\n{arguments(call, style)}" for call in calls)
    return text.removeprefix(">>>") if style.variant == "first" else text


def functionary_v31(calls: Sequence[Call], style: Style) -> str:
    return "\n".join(f"<function={call.name}>{arguments(call, style)}</function>" for call in calls)


def beam(calls: Sequence[Call], style: Style) -> str:
    return "".join(
        f"<|start|>assistant to={call.name}<|channel|>analysis <|constrain|>xml<|message|>"
        + "".join(
            f'<rfl:parameter name="{key}">\n{untyped(value)}\n</rfl:parameter>' for key, value in call.arguments.items()
        )
        + "<|call|>"
        for call in calls
    )


def tagged_array(opener: str, closer: str, key: str = "arguments", name: str = "name") -> Write:
    """One array of calls between two tags."""

    def write(calls: Sequence[Call], style: Style) -> str:
        array = call_array(calls, style, key)
        if name != "name":
            array = array.replace('"name":', f'"{name}":')
        return f"{opener}{style.variant}{array}{style.variant}{closer}"

    return write


def llm_jp(calls: Sequence[Call], style: Style) -> str:
    """Harmony with a blank behind each special token; only the last call ends with `<|call|>`."""
    texts = [
        f"<|channel|> commentary to=functions.{call.name}<|constrain|> json<|message|> {arguments(call, style)}"
        for call in calls
    ]
    return "<|end|><|start|> assistant".join(texts) + "<|call|>"


def minimax_m1(calls: Sequence[Call], style: Style) -> str:
    lines = "\n".join(call_object(call, style) for call in calls)
    return f"<tool_calls>\n{lines}\n</tool_calls>"


def step_audio2(calls: Sequence[Call], style: Style) -> str:
    return "\n".join(f"<tool_call>function\n{call.name}\n{arguments(call, style)}</tool_call>" for call in calls)


def sarashina(calls: Sequence[Call], style: Style) -> str:
    quote = '"' if style.variant == "double" else ""
    texts = (f"{{'name': '{call.name}', 'arguments': {python(call.arguments, quote=quote)}}}" for call in calls)
    return f"<|tool_calls|>[{', '.join(texts)}]"


def ui_tars(calls: Sequence[Call], style: Style) -> str:
    return "\n".join(f"Action: {_python_call(call)}" for call in calls)


def gigachat(calls: Sequence[Call], style: Style) -> str:
    opener = "<|function_call|>" if style.variant == "token" else "<|message_sep|>\n\nfunction call<|role_sep|>\n"
    return "".join(f"{opener}{call_object(call, style)}" for call in calls)
