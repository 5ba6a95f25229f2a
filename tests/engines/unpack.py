"""Weights of one GGUF file as a folder that transformers reads: `FILE FOLDER`. Run by the Python of an engine that has
`gguf` and `torch`.

transformers reads GGUF itself, and keeps the quantized weights, which it cannot write. The model is a Qwen 2, whose
tensors are the same under other names.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import gguf
import torch
from safetensors.torch import save_file
from transformers import AutoTokenizer

LAYER = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}
OTHERS = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}


def named(tensor: str) -> str:
    """The name of a tensor in transformers."""
    found = re.fullmatch(r"blk\.(\d+)\.(\w+)\.(weight|bias)", tensor)
    return f"model.layers.{found[1]}.{LAYER[found[2]]}.{found[3]}" if found else OTHERS[tensor]


file, folder = Path(sys.argv[1]), Path(sys.argv[2])
reader = gguf.GGUFReader(file)
weights = {
    named(one.name): torch.from_numpy(gguf.quants.dequantize(one.data, one.tensor_type).copy()).to(torch.bfloat16)
    for one in reader.tensors
}


def said(key: str) -> int | float:
    """A number of the file's header."""
    value: int | float = reader.fields[f"qwen2.{key}"].contents()
    return value


vocabulary, hidden = weights["model.embed_tokens.weight"].shape
config = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "hidden_act": "silu",
    "hidden_size": hidden,
    "vocab_size": vocabulary,
    "num_hidden_layers": int(said("block_count")),
    "intermediate_size": int(said("feed_forward_length")),
    "num_attention_heads": int(said("attention.head_count")),
    "num_key_value_heads": int(said("attention.head_count_kv")),
    "max_position_embeddings": int(said("context_length")),
    "rms_norm_eps": float(said("attention.layer_norm_rms_epsilon")),
    "rope_theta": float(said("rope.freq_base")),
    "tie_word_embeddings": "lm_head.weight" not in weights,
    "torch_dtype": "bfloat16",
    "bos_token_id": 151643,
    "eos_token_id": 151645,
}
folder.mkdir(parents=True, exist_ok=True)
(folder / "config.json").write_text(json.dumps(config, indent=1))
ends = {"bos_token_id": 151643, "eos_token_id": [151645, 151643], "pad_token_id": 151643}
(folder / "generation_config.json").write_text(json.dumps(ends))
AutoTokenizer.from_pretrained(str(file.parent), gguf_file=file.name).save_pretrained(folder)
save_file({name: one.contiguous() for name, one in weights.items()}, folder / "model.safetensors", {"format": "pt"})
