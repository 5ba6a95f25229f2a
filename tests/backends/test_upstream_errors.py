"""R10.8 as a table, and what may be shown of a model server's own words."""

from __future__ import annotations

import orjson
import pytest

from tests.cases import every
from toolwire.errors import BackendFault, ClientFault
from toolwire.protocols.chat.reply import read_error
from toolwire.protocols.shared import openai
from toolwire.protocols.shared.server_errors import SLIP
from toolwire.upstream.pool.server import is_failure
from toolwire.upstream.servers.private_data import PrivateData
from toolwire.upstream.servers.refusals import refuses_tools
from toolwire.upstream.servers.upstream_errors import MAX_MESSAGE_CHARS, clean_text, read_refusal


def said(message: str, **more: object) -> bytes:
    return orjson.dumps({"error": {"message": message, "type": "x", "param": None, "code": None, **more}})


@every(
    ("status", "to", "code", "fault"),
    [
        (400, 400, "upstream_rejected", ClientFault),
        (422, 400, "upstream_rejected", ClientFault),
        (401, 502, "upstream_auth", BackendFault),
        (403, 502, "upstream_auth", BackendFault),
        (404, 502, "upstream_error", BackendFault),
        (405, 502, "upstream_error", BackendFault),
        (408, 504, "upstream_timeout", BackendFault),
        (413, 413, "request_too_large", ClientFault),
        (429, 429, "rate_limit_exceeded", ClientFault),
        (500, 502, "upstream_error", BackendFault),
        (502, 502, "upstream_error", BackendFault),
        (503, 502, "upstream_error", BackendFault),
        (504, 504, "upstream_timeout", BackendFault),
        (301, 502, "upstream_error", BackendFault),
        (307, 502, "upstream_error", BackendFault),
        (204, 502, "upstream_error", BackendFault),
    ],
)
def test_status_table(status: int, to: int, code: str, fault: type[Exception]) -> None:
    error = read_refusal(status, {"Retry-After": "7"}, said("the reason"))
    assert (error.status, error.code) == (to, code)
    assert isinstance(error, fault)
    if not 300 <= status < 400:
        assert "the reason" in error.message
    told = {"Retry-After": "7"} if status == 429 else {"x-should-retry": "false"} if code == "upstream_auth" else {}
    assert error.headers == told


SLIPPED = {"message": "Tool call validation failed: parameters for tool read did not match", "code": SLIP}


@every("body", [said(**SLIPPED), said("Provider returned error", metadata={"raw": said(**SLIPPED).decode()})])
def test_a_call_that_the_model_wrote_wrong_is_no_refusal(body: bytes) -> None:
    """Another attempt may succeed, and the server takes tools."""
    for error in (read_refusal(400, {}, body), read_error({**orjson.loads(body), "status_code": 400})):
        assert error is not None
        assert (error.status, error.transient, refuses_tools(error), is_failure(error)) == (502, True, False, False)


@every(
    "body",
    [
        said("[{'type': 'missing', 'loc': ('body', 'messages'), 'input': {'model': 'm', 'tools': [], 'seed': 1}}]"),
        b'{"detail":[{"type":"missing","loc":["body","messages"],"input":{"model":"m","tools":[]}}]}',
        said("1 validation error\n  Field required [type=missing, input_value={'tools': []}, input_type=dict]"),
    ],
)
def test_a_message_that_repeats_the_request_refuses_none_of_its_tools(body: bytes) -> None:
    assert not refuses_tools(read_refusal(400, {}, body))
    assert refuses_tools(read_refusal(400, {}, said("Invalid type for 'input': expected no tools")))


def test_the_code_of_a_provider_hides_no_status() -> None:
    raw = said("Slow.", code="too_fast").decode()
    error = read_error(orjson.loads(said("Provider returned error", code=429, metadata={"raw": raw})))
    assert error is not None
    assert (error.code, error.upstream_status) == ("rate_limit_exceeded", 429)


@pytest.mark.parametrize(
    "body",
    [
        said("The model `x` does not exist.", type="NotFoundError", code=404),
        said('model "x" not found, try pulling it first', type="api_error"),
        said("The model `x` does not exist or you do not have access to it.", code="model_not_found"),
        said("Unknown name", param="model"),
        said("gone", code="model_not_found"),
        orjson.dumps({"object": "error", "message": "The model `x` does not exist.", "code": 404}),
        b'{"error":"model \'x\' not found"}',
        b'{"error":"No models loaded. Load one first."}',
        b"Unknown model: x",
    ],
)
def test_a_model_that_the_server_does_not_have(body: bytes) -> None:
    error = read_refusal(404, {}, body)
    assert isinstance(error, ClientFault)
    assert (error.status, error.code, error.param, error.transient) == (404, "model_not_found", "model", False)
    assert openai.read_refusal(body)[0] in error.message


@every(
    "text",
    [
        "Server is pinned to 'a/b'; requested 'c'.",
        "/chat/completions: Invalid model name passed in model=c. Call `/v1/models` to view available models for your key.",
        "c/d is not a valid model ID",
        "Model Not Exist",
        "Invalid model: c",
        "invalid model ID",
        "The requested model 'c' does not exist.",
        "The model `c` doesn't exist.",
        "Model not found",
        "The provided model identifier is invalid.",
        "Unknown Model, please check the model code.",
    ],
)
def test_a_model_that_a_server_refuses_with_400(text: str) -> None:
    """Servers refuse it so, as an answer and within one."""
    within = read_error(orjson.loads(said(text, code=400)))
    for error in (read_refusal(400, {}, orjson.dumps({"detail": text})), within):
        assert isinstance(error, ClientFault), error
        assert (error.status, error.code, error.param, error.upstream_status) == (404, "model_not_found", "model", 400)
        assert text in error.message


@every(
    "text",
    [
        "The model does not support images.",
        "This model's tool calls are not supported.",
        "Invalid model parameter: temperature",
        "Unknown model parameter: temperature",
        "The embedding model 'c' does not exist.",
        "The image in messages[0] was not found.",
    ],
)
def test_a_400_that_only_names_the_model(text: str) -> None:
    for error in (read_refusal(400, {}, said(text)), read_error(orjson.loads(said(text, code=400)))):
        assert error is not None
        assert (error.status, error.code) == (400, "upstream_rejected")


def test_a_400_that_repeats_words_of_the_request() -> None:
    """Pydantic's, which quotes a message."""
    text = "[{'type': 'string_type', 'loc': ('body', 'user'), 'msg': 'Input should be a string', 'input': 'Model not found'}]"
    assert read_refusal(400, {}, said(text)).code == "upstream_rejected"


@pytest.mark.parametrize(
    "body",
    [
        b"404 page not found",
        b'{"detail":"Not Found"}',
        b"<html><title>404: the model</title></html>",
        b"",
        said("Invalid URL (POST /v1/models/chat/completions)"),
        said("no route: /models"),
        b"Cannot POST /model/chat",
        b"service model-gateway not found",
    ],
)
def test_a_path_that_the_server_does_not_have(body: bytes) -> None:
    error = read_refusal(404, {}, body)
    assert (error.status, error.code, type(error)) == (502, "upstream_error", BackendFault)


@pytest.mark.parametrize(
    "body",
    [
        said("x", code="context_length_exceeded"),
        said("x", type="exceed_context_size_error"),
        orjson.dumps({"object": "error", "message": "maximum context length is 8 tokens", "code": 400}),
    ],
)
def test_context_length(body: bytes) -> None:
    error = read_refusal(400, {}, body)
    assert (error.status, error.code) == (400, "context_length_exceeded")


@every(
    ("body", "message"),
    [
        (said("plain"), "plain"),
        (b'{"error":"a string"}', "a string"),
        (b'{"message":"old style","code":400}', "old style"),
        (b'{"detail":"not found"}', "not found"),
        *((body, "boom") for body in (b'{"code":1,"msg":"boom"}', b'[{"errors":[{"error_msg":"boom"}]}]')),
        (b'{"detail":[{"loc":["body"],"msg":"bad"}]}', '[{"loc":["body"],"msg":"bad"}]'),
        (b'{"detail":{"error":{"message":"boom"}}}', "boom"),
        (b'{"__type":"ValidationException","Message":"boom"}', "boom"),
        (said(said("boom").decode()), "boom"),
        (said('{"not": "an error"}'), '{"not": "an error"}'),
        *(
            (
                said("Provider returned error", metadata={"raw": raw, "provider_name": "p"}),
                f"Provider returned error{more}",
            )
            for raw, more in ((said("boom").decode(), ": boom"), ("boom", ": boom"), ("<html>", ""), (None, ""))
        ),
        (said("[sic]"), "[sic]"),
        (b"data: " + said("boom") + b"\n\n", "boom"),
        (b"event: error\r\ndata: " + said("boom") + b"\r\n\r\ndata: [DONE]\r\n\r\n", "boom"),
        (b"data: boom\n\n", "data: boom"),
        (b"short text", "short text"),
        (b"<html><body>nginx</body></html>", ""),
        (b"", ""),
        (b"null", ""),
        (b"[]", ""),
        (b'{"error":{}}', ""),
        (b"\xff\xfe", "\ufffd\ufffd"),
    ],
)
def test_read_message(body: bytes, message: str) -> None:
    assert openai.read_refusal(body)[0] == message


@every(
    ("text", "shown"),
    [
        ("Cannot reach http://10.0.0.5:8000/v1/x now", "Cannot reach [address] now"),
        ("connect to 10.0.0.5:8000 failed", "connect to [address] failed"),
        ("dial tcp [::1]:11434: refused", "dial tcp [address]: refused"),
        ("dial http://[::1]:45883/v1 failed", "dial [address] failed"),
        ("dial [http://[::1]:45883/v1] failed", "dial [[address]] failed"),
        ("GET http://u:p@[fe80::1%25eth0]:80/x?y=[1]: gone", "GET [address] gone"),
        ("dial tcp [::ffff:10.0.0.5]:80: refused", "dial tcp [address]: refused"),
        ("Connect call failed ('::1', 45883, 0, 0)", "Connect call failed ('[address]', 45883, 0, 0)"),
        ("no route to fd00::a:1: gone, fe80::1%eth0.", "no route to [address]: gone, [address]."),
        ("at 12:30:45 std::vector a::b_c :: 1.5:2 failed", "at 12:30:45 std::vector a::b_c :: 1.5:2 failed"),
        ("host gpu-3.cluster.local:8000 is down", "host [address] is down"),
        ("localhost:11434 refused", "[address] refused"),
        ("Incorrect API key provided: sk-abcdef123456", "Incorrect API key provided: [key]"),
        (
            'Bad.\nTraceback (most recent call last):\n  File "/a/b.py", line 1\nValueError: no such role',
            "Bad. no such role",
        ),
        ("Error: boom\n    at Server.handle (/app/x.js:1:2)\n    at next (y.js:2)", "Error: boom"),
        ("panic\ngoroutine 1 [running]:\nmain.main()\n\t/src/main.go:3", "panic"),
        (
            "temperature must be in [0, 2], got 3.5: see ratio 1:20",
            "temperature must be in [0, 2], got 3.5: see ratio 1:20",
        ),
        ("two\n  lines", "two lines"),
    ],
)
def test_clean(text: str, shown: str) -> None:
    assert clean_text(text) == shown


def test_clean_hides_private_words_and_shortens() -> None:
    assert clean_text("gpu-node says no", private=PrivateData(hosts=("gpu-node",))) == "[address] says no"
    assert len(clean_text("x" * 10_000)) == MAX_MESSAGE_CHARS
