"""Model servers that say of themselves what those of the known engines say: the shapes of their answers, recorded or
documented."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from toolwire.testing import Answer, Asked, Refuse


def page(value: Any, status: int = 200) -> Answer:
    """An answer in JSON."""
    return Answer([orjson.dumps(value)], status=status, headers={"Content-Type": "application/json"}, framing="length")


@dataclass
class Engine:
    """What is at the paths of a server; `elsewhere` at all others."""

    preset: str
    pages: Mapping[str, Any]
    elsewhere: Answer = field(default_factory=lambda: Refuse(404, "Not Found"))

    def __call__(self, asked: Asked) -> Answer:
        return page(self.pages[asked.path]) if asked.path in self.pages else self.elsewhere


def models(owner: str | None, *names: str, **more: Any) -> dict[str, Any]:
    """A list of models."""
    entries = [{"id": name, "object": "model", "created": 1764000000, **more} for name in names]
    return {"object": "list", "data": [entry if owner is None else {**entry, "owned_by": owner} for entry in entries]}


TEMPLATE = "{% for message in messages %}{{ '<|im_start|>' + message['role'] }}{% endfor %}"


def llamacpp(name: str = "qwen2.5-coder-0.5b-instruct", **props: Any) -> Engine:
    """llama.cpp's server, build b6792; without jinja's template of tools."""
    listed = models("llamacpp", name, meta={"vocab_type": 2, "n_vocab": 49152, "n_ctx_train": 32768, "size": 96576768})
    said = {
        "default_generation_settings": {"id": 0, "n_ctx": 8192, "params": {"temperature": 0.8}},
        "total_slots": 1,
        "model_alias": name,
        "model_path": f"/models/{name}-q4_k_m.gguf",
        "modalities": {"vision": False, "audio": False},
        "chat_template": TEMPLATE,
        "build_info": "b6792-1ca87eb",
    }
    listed["models"] = [{"name": name, "model": name, "digest": "", "details": {"format": "gguf"}}]
    return Engine("llamacpp", {"/v1/models": listed, "/props": {**said, **props}})


def vllm(*names: str, root: str = "Qwen/Qwen3-8B", adapters: tuple[str, ...] = ()) -> Engine:
    """vLLM's, with all names that it was given for its model, and adapters on top."""
    listed = models("vllm", *(names or (root,)), root=root, parent=None, max_model_len=40960, permission=[{"id": "p"}])
    listed["data"] += models("vllm", *adapters, root="/adapters/a", parent=root)["data"]
    return Engine("vllm", {"/v1/models": listed, "/version": {"version": "0.11.2"}})


def sglang(name: str = "meta-llama/Llama-3.1-8B-Instruct") -> Engine:
    """SGLang's."""
    return Engine(
        "sglang",
        {
            "/v1/models": models("sglang", name, root=name, max_model_len=131072),
            "/get_model_info": {"model_path": name, "tokenizer_path": name, "is_generation": True, "preferred_sampling_params": None},
            "/server_info": {"model_path": name, "context_length": 131072, "version": "0.5.5"},
        },
    )  # fmt: skip


def ollama(*names: str) -> Engine:
    """Ollama's; without any model its list is null."""
    tags = [{"name": name, "model": name, "digest": "a80c4f17acd5", "details": {"family": "qwen2"}} for name in names]
    listed = models("library", *names) if names else {"object": "list", "data": None}
    return Engine(
        "ollama", {"/v1/models": listed, "/api/version": {"version": "0.12.6"}, "/api/tags": {"models": tags}}
    )


def lmstudio(loaded: tuple[str, ...], on_disk: tuple[str, ...] = ()) -> Engine:
    """LM Studio's, which says 200 to whatever it does not know."""
    entries = [
        {
            "id": name, "object": "model", "type": "embeddings" if "embed" in name else "llm", "publisher": "p", "arch": "qwen2",
            "state": "loaded" if name in loaded else "not-loaded", "max_context_length": 32768,
        }
        for name in (*loaded, *on_disk)
    ]  # fmt: skip
    return Engine(
        "lmstudio",
        {
            "/v1/models": models("organization_owner", *loaded, *on_disk),
            "/api/v0/models": {"object": "list", "data": entries},
        },
        page({"error": "Unexpected endpoint or method. (GET /props). Returning 200 anyway"}),
    )


def tgi(name: str = "mistralai/Mistral-7B-Instruct-v0.3") -> Engine:
    """Text Generation Inference, before it had a list of models."""
    info = {
        "model_id": name,
        "model_dtype": "float16",
        "max_total_tokens": 4096,
        "version": "3.3.4",
        "router": "text-generation-router",
    }
    return Engine("generic", {"/info": info})  # fmt: skip


def transformers(name: str = "Qwen/Qwen2.5-0.5B-Instruct") -> Engine:
    """That of `transformers serve`."""
    listed = models(name.split("/")[0], name, status={"value": "loaded"})
    return Engine("transformers", {"/v1/models": listed, "/health": {"status": "ok"}})


EVERY: Mapping[str, Callable[[], Engine]] = {
    "llama.cpp": llamacpp,
    "vLLM": vllm,
    "SGLang": sglang,
    "Ollama": lambda: ollama("qwen2.5:0.5b", "llama3.2:1b"),
    "LM Studio": lambda: lmstudio(("qwen2.5-7b-instruct",), ("text-embedding-nomic", "gemma-3-4b")),
    "Text Generation Inference": tgi,
    "transformers serve": transformers,
}
