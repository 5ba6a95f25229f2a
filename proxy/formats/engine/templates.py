"""Control tokens of chat templates: they end or begin a turn, frame a result, or stand for images and other media.

Servers look for them in the whole prompt, also in text of users and tools (vLLM, SGLang and llama.cpp do). A tool
result with `<|im_end|>` would end its own message and could begin another one. So they are escaped in prompt data
(R5.6).

Rules of this module:

1. A table contains what the published tokenizers and templates of one family say. Other text is ordinary for it.
2. Markers of calls and reasoning belong to the formats (`Grammar.markers`) and are not listed here, unless the template
   uses them everywhere.
3. This module has the tables that several formats use, and those of models without a format. All others are beside
   their format.
"""

from __future__ import annotations

from typing import Final


def between(opener: str, words: str, closer: str) -> tuple[str, ...]:
    """Returns `opener + word + closer` for each of the words, which blanks separate."""
    return tuple(f"{opener}{word}{closer}" for word in words.split())


def bars(words: str) -> tuple[str, ...]:
    """Returns `<|word|>` for each word."""
    return between("<|", words, "|>")


def wide_bars(words: str) -> tuple[str, ...]:
    """Returns `<|word|>` for each word, with the bar U+FF5C."""
    return between("<｜", words, "｜>")


# Qwen, Nous, Yi, Liquid, Olmo 3, MiMo, IQuest, Arcee, Step 3.5, MiniCPM and most fine-tunes.
CHATML: Final = bars(
    "im_start im_end im_sep endoftext startoftext object_ref_start object_ref_end box_start box_end quad_start quad_end "
    "vision_start vision_end vision_pad image_pad video_pad audio_start audio_end audio_pad fim_prefix fim_middle fim_suffix "
    "fim_pad repo_name file_sep"
)
LLAMA3: Final = bars(
    "begin_of_text end_of_text start_header_id end_header_id eot_id eom_id finetune_right_pad_id image"
)
# Llama 2, and models with its vocabulary.
SENTENCEPIECE: Final = ("<s>", "</s>", "<unk>")
LLAMA2: Final = (*SENTENCEPIECE, "[INST]", "[/INST]", "<<SYS>>", "<</SYS>>")
MISTRAL: Final = (
    *SENTENCEPIECE,
    *between(
        "[",
        "INST /INST SYSTEM_PROMPT /SYSTEM_PROMPT AVAILABLE_TOOLS /AVAILABLE_TOOLS TOOL_RESULTS /TOOL_RESULTS TOOL_CONTENT "
        "MODEL_SETTINGS /MODEL_SETTINGS IMG IMG_BREAK IMG_END AUDIO BEGIN_AUDIO PREFIX MIDDLE SUFFIX",
        "]",
    ),
    "<pad>",
)
GEMMA: Final = (
    *between("<", "bos eos pad unk start_of_turn end_of_turn start_of_image end_of_image image_soft_token", ">"),
)
DEEPSEEK: Final = (
    *wide_bars(
        "begin▁of▁sentence end▁of▁sentence User Assistant ▁pad▁ fim▁begin fim▁hole fim▁end tool▁outputs▁begin tool▁outputs▁end "
        "tool▁output▁begin tool▁output▁end search▁begin search▁end latest_reminder"
    ),
    "<|EOT|>",
)
GRANITE: Final = bars(
    "start_of_role end_of_role end_of_text start_of_cite end_of_cite start_of_plugin end_of_plugin pad unk "
    "fim_prefix fim_middle fim_suffix fim_pad filename reponame"
)
MINIMAX: Final = ("]~!b[", "]~b]", "[e~[", "]!p~[", "]!d~[")
HUNYUAN: Final = (
    *bars("startoftext endoftext extra_0 extra_4 extra_5 eos bos pad"),
    *wide_bars(
        "hy_begin▁of▁sentence hy_end▁of▁sentence hy_User hy_Assistant hy_▁pad▁ hy_place▁holder▁no▁2 hy_place▁holder▁no▁3 "
        "hy_place▁holder▁no▁8 reasoning_mode"
    ),
)
NEMOTRON: Final = (
    *LLAMA3,
    *CHATML,
    *SENTENCEPIECE,
    *(f"<SPECIAL_{number}>" for number in range(10, 20)),
    *(f"<extra_id_{number}>" for number in range(2)),
)
GIGACHAT: Final = (*SENTENCEPIECE, *bars("role_sep message_sep file_start file_end"))
EXAONE: Final = between("[|", "system user assistant tool endofturn", "|]")
# Zephyr, Falcon 3, OpenChat, Megrez, SmolVLM and others without a format of their own.
OTHERS: Final = (
    *bars("system user assistant end_of_turn role_start role_end turn_end endofturn eot eos bos"),
    "<end_of_utterance>",
)

WITHOUT_FORMAT: Final = frozenset((*LLAMA2, *GEMMA, *EXAONE, *OTHERS))
"""Control tokens of models for which there is no format."""
