"""Control tokens of chat templates: they end or begin a turn, frame a result, or stand for images and other media.

Servers look for them in the whole prompt, also in text of users and tools (vLLM, SGLang and llama.cpp do). A tool
result with `<|im_end|>` would end its own message and could begin another one. So they are escaped in prompt data
(R5.6).

Rules of this module:

1. A table contains what the published tokenizers and templates of one family say. Other text is ordinary for it.
2. Markers of calls and reasoning belong to the formats (`Grammar.markers`) and are not listed here, unless the template
   uses them everywhere.
3. `_FORMATS` maps a format's name to the families it is for. A format that is not listed may be taught to any model,
   and gets the tokens of all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final


def _between(opener: str, words: str, closer: str) -> tuple[str, ...]:
    return tuple(f"{opener}{word}{closer}" for word in words.split())


def _bars(words: str) -> tuple[str, ...]:
    """Returns `<|word|>` for each word."""
    return _between("<|", words, "|>")


def _wide_bars(words: str) -> tuple[str, ...]:
    """Returns `<|word|>` for each word, with the bar U+FF5C."""
    return _between("<｜", words, "｜>")


# Qwen, Nous, Yi, Liquid, Olmo 3, MiMo, IQuest, Arcee, Step 3.5, MiniCPM and most fine-tunes.
CHATML: Final = _bars(
    "im_start im_end im_sep endoftext startoftext object_ref_start object_ref_end box_start box_end quad_start quad_end "
    "vision_start vision_end vision_pad image_pad video_pad audio_start audio_end audio_pad fim_prefix fim_middle fim_suffix "
    "fim_pad repo_name file_sep"
)
LLAMA3: Final = _bars(
    "begin_of_text end_of_text start_header_id end_header_id eot_id eom_id finetune_right_pad_id image"
)
LLAMA4: Final = _bars(
    "begin_of_text end_of_text header_start header_end eot eom step finetune_right_pad "
    "image_start image_end tile_x_separator tile_y_separator patch image fim_prefix fim_middle fim_suffix"
)
# Llama 2, and models with its vocabulary.
SENTENCEPIECE: Final = ("<s>", "</s>", "<unk>")
LLAMA2: Final = (*SENTENCEPIECE, "[INST]", "[/INST]", "<<SYS>>", "<</SYS>>")
MISTRAL: Final = (
    *SENTENCEPIECE,
    *_between(
        "[",
        "INST /INST SYSTEM_PROMPT /SYSTEM_PROMPT AVAILABLE_TOOLS /AVAILABLE_TOOLS TOOL_RESULTS /TOOL_RESULTS TOOL_CONTENT "
        "MODEL_SETTINGS /MODEL_SETTINGS IMG IMG_BREAK IMG_END AUDIO BEGIN_AUDIO PREFIX MIDDLE SUFFIX",
        "]",
    ),
    "<pad>",
)
GEMMA: Final = (
    *_between("<", "bos eos pad unk start_of_turn end_of_turn start_of_image end_of_image image_soft_token", ">"),
)
FUNCTIONGEMMA: Final = (
    *GEMMA,
    *_between(
        "<",
        "start_function_declaration end_function_declaration start_function_response end_function_response",
        ">",
    ),
)
GEMMA4: Final = (
    *_between("<", "bos eos pad unk", ">"),
    *_between("<|", "turn tool tool_response image audio video", ">"),
    *_between("<", "turn tool tool_response image audio video", "|>"),
    *_bars("think image audio video"),
)
DEEPSEEK: Final = (
    *_wide_bars(
        "begin▁of▁sentence end▁of▁sentence User Assistant ▁pad▁ fim▁begin fim▁hole fim▁end tool▁outputs▁begin tool▁outputs▁end "
        "tool▁output▁begin tool▁output▁end search▁begin search▁end latest_reminder"
    ),
    "<|EOT|>",
)
HARMONY: Final = _bars("start end message channel constrain return call startoftext endoftext endofprompt")
KIMI_K2: Final = (
    *_bars(
        "im_system im_user im_assistant im_middle im_end start_header_id end_header_id media_begin media_content media_end "
        "media_pad"
    ),
    *_between("[", "BOS EOS EOT PAD UNK", "]"),
)
KIMI_K3: Final = (
    *_bars("open close sep end_of_msg kimi_image_placeholder"),
    *_between("[", "BOS EOS EOT PAD UNK", "]"),
)
GLM: Final = (
    *_bars(
        "system user assistant observation endoftext begin_of_image end_of_image image begin_of_video end_of_video video "
        "begin_of_audio end_of_audio begin_of_transcription end_of_transcription code_prefix code_middle code_suffix"
    ),
    *_between("[", "gMASK sMASK MASK", "]"),
    *_between("<", "sop eop", ">"),
)
GRANITE: Final = _bars(
    "start_of_role end_of_role end_of_text start_of_cite end_of_cite start_of_plugin end_of_plugin pad unk "
    "fim_prefix fim_middle fim_suffix fim_pad filename reponame"
)
PHI: Final = _bars(
    "system user assistant end tool /tool tool_response /tool_response tag endoftext im_start im_end im_sep "
    "dummy_85 fim_prefix fim_middle fim_suffix"
)
COHERE: Final = (
    *_bars(
        "START_OF_TURN_TOKEN END_OF_TURN_TOKEN SYSTEM_TOKEN USER_TOKEN CHATBOT_TOKEN START_TOOL_RESULT END_TOOL_RESULT YES_TOKEN "
        "NO_TOKEN"
    ),
    *_between("<", "BOS_TOKEN EOS_TOKEN PAD UNK CLS SEP MASK_TOKEN", ">"),
)
MINIMAX: Final = ("]~!b[", "]~b]", "[e~[", "]!p~[", "]!d~[")
ERNIE: Final = (
    *SENTENCEPIECE,
    *_bars("begin_of_sentence end_of_sentence im_start im_end image@placeholder video@placeholder"),
)
HUNYUAN: Final = (
    *_bars("startoftext endoftext extra_0 extra_4 extra_5 eos bos pad"),
    *_wide_bars(
        "hy_begin▁of▁sentence hy_end▁of▁sentence hy_User hy_Assistant hy_▁pad▁ hy_place▁holder▁no▁2 hy_place▁holder▁no▁3 "
        "hy_place▁holder▁no▁8 reasoning_mode"
    ),
)
SEED: Final = _between("<", "seed:bos seed:eos seed:pad", ">")
STEP3: Final = (
    *_wide_bars(
        "begin▁of▁sentence end▁of▁sentence tool_outputs_begin tool_outputs_end tool_output_begin tool_output_end"
    ),
    *_bars("BOT EOT im_start im_end"),
)
INTERNLM: Final = (*CHATML, *_bars("plugin interpreter"), *SENTENCEPIECE)
JAMBA: Final = _bars("startoftext endoftext bom eom system user assistant tool document pad unk")
NEMOTRON: Final = (
    *LLAMA3,
    *CHATML,
    *SENTENCEPIECE,
    *(f"<SPECIAL_{number}>" for number in range(10, 20)),
    *(f"<extra_id_{number}>" for number in range(2)),
)
APERTUS: Final = (
    *SENTENCEPIECE,
    *_bars(
        "system_start system_end developer_start developer_end user_start user_end assistant_start assistant_end inner_prefix "
        "inner_suffix"
    ),
)
LONGCAT: Final = _between(
    "<",
    "longcat_s /longcat_s longcat_pad longcat_unk longcat_system longcat_user longcat_assistant longcat_tool_declare "
    "/longcat_tool_declare longcat_tool_response",
    ">",
)
LFM2: Final = (
    *CHATML,
    *_bars("tool_list_start tool_list_end tool_response_start tool_response_end pad"),
)
GIGACHAT: Final = (*SENTENCEPIECE, *_bars("role_sep message_sep file_start file_end"))
MUSE: Final = _bars("begin_of_text end_of_text start message eom eot finetune_right_pad")
K2_HORIZON: Final = _between("<|ifm|", "begin_of_text end_of_text endoftext im_start im_end", "|>")
SOLAR: Final = _bars(
    "im:start im:content im:end tool:start tool:end think:start think:end tool_response:start tool_response:end"
)
INKLING: Final = _bars(
    "message_user message_model message_system message_tool content_text content_image content_audio_input content_thinking "
    "content_xml content_tool_error content_invoke_tool content_invoke_tool_json content_invoke_tool_text "
    "content_model_end_sampling model_trigger_generation end_message audio_end audio endoftext"
)
PLAMO: Final = ("<|plamo:",)  # the common beginning of all its tokens
PANGU: Final = (*SENTENCEPIECE, *(f"[unused{number}]" for number in range(9, 20)))
APRIEL: Final = (
    *MISTRAL,
    *_bars("begin_system begin_user begin_assistant begin_tool_result begin_content end system user assistant"),
)
DOTS: Final = _bars(
    "system endofsystem userprompt endofuserprompt response endofresponse observation endofobservation endoftext"
)
HYPERCLOVAX: Final = (*CHATML, *_bars("endofturn stop"))
EXAONE: Final = _between("[|", "system user assistant tool endofturn", "|]")
# Zephyr, Falcon 3, OpenChat, Megrez, SmolVLM and others without a format of their own.
OTHERS: Final = (
    *_bars("system user assistant end_of_turn role_start role_end turn_end endofturn eot eos bos"),
    "<end_of_utterance>",
)

_FAMILIES: Final[tuple[tuple[str, ...], ...]] = (
    CHATML, LLAMA2, LLAMA3, LLAMA4, MISTRAL, GEMMA, FUNCTIONGEMMA, GEMMA4, DEEPSEEK, HARMONY, KIMI_K2, KIMI_K3, GLM, GRANITE,
    PHI, COHERE, MINIMAX, ERNIE, HUNYUAN, SEED, STEP3, INTERNLM, JAMBA, NEMOTRON, APERTUS, LONGCAT, LFM2, GIGACHAT, MUSE, K2_HORIZON,
    SOLAR, INKLING, PLAMO, PANGU, APRIEL, DOTS, HYPERCLOVAX, EXAONE, OTHERS,
)  # fmt: skip

ALL: Final = frozenset(token for family in _FAMILIES for token in family)
"""The tokens of all families, for a format that may be taught to any model."""

_FORMATS: Final[Mapping[str, tuple[tuple[str, ...], ...]]] = {
    "hermes": (CHATML, LLAMA3, GRANITE),  # Qwen; Hermes, on Llama as well; Granite 4
    "qwen3_coder": (CHATML, NEMOTRON),
    "seed_oss": (SEED,),
    "glm45": (GLM,),
    "glm47": (GLM,),
    "mistral": (MISTRAL,),
    "mistral_v3": (MISTRAL,),
    "deepseek_v3": (DEEPSEEK,),
    "deepseek_v31": (DEEPSEEK,),
    "deepseek_v32": (DEEPSEEK,),
    "kimi_k2": (KIMI_K2,),
    "kimi_k3": (KIMI_K3,),
    "minimax_m2": (MINIMAX,),
    "step3": (STEP3,),
    "minicpm5": (CHATML, SENTENCEPIECE),
    "pythonic": (LLAMA4, LLAMA3),
    "lfm2": (LFM2,),
    "olmo3": (CHATML,),
    "gemma4": (GEMMA4,),
    "functiongemma": (FUNCTIONGEMMA,),
    "harmony": (HARMONY,),
    "llama3_json": (LLAMA3,),
    "granite": (GRANITE,),
    "phi4_mini": (PHI,),
    "xlam": (CHATML, LLAMA3, MISTRAL, DEEPSEEK),  # fine-tunes of all of these
    "jamba": (JAMBA,),
    "hunyuan": (HUNYUAN,),
    "nemotron": (NEMOTRON,),
    "apertus": (APERTUS,),
    "cohere": (COHERE,),
    "internlm": (INTERNLM,),
    "ernie": (ERNIE,),
    "longcat": (LONGCAT,),
    "gigachat": (GIGACHAT,),
    "gigachat35": (GIGACHAT,),
    "deepseek_v4": (DEEPSEEK,),
    "deepseek_v41": (DEEPSEEK,),
    "mimo": (CHATML,),
    "minimax_m3": (MINIMAX,),
    "dots_llm": (DOTS,),
    "muse": (MUSE,),
    "beam": (HARMONY,),
    "iquest": (CHATML,),
    "hunyuan3": (HUNYUAN,),
    "hunyuan4": (HUNYUAN,),
    "k2_horizon": (K2_HORIZON, CHATML),
    "solar_open2": (SOLAR,),
    "inkling": (INKLING,),
    "plamo3": (PLAMO,),
    "openpangu": (PANGU,),
    "hyperclovax": (HYPERCLOVAX,),
    "apriel": (APRIEL,),
    "trinity": (CHATML, LLAMA3),
    "functionary": (LLAMA3,),
    "functionary_v31": (LLAMA3,),
    "cwm": (LLAMA3,),
    "llm_jp": (HARMONY,),
    "ui_tars": (CHATML,),
    "iquest_coder": (CHATML,),
}


def tokens(format_name: str) -> frozenset[str]:
    """Returns the control tokens of the models that a format is made for."""
    families = _FORMATS.get(format_name)
    return ALL if families is None else frozenset(token for family in families for token in family)
