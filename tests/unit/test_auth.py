"""Keys: where they come from, how they are kept, what they may do."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.cases import every
from toolwire.cli import main
from toolwire.config import AuthConfig, KeyConfig, RateLimitConfig
from toolwire.errors import GatewayError
from toolwire.ingress.auth import Keys, hash_key, new_key
from toolwire.support.conversion import ConfigError


def keys(*entries: str | KeyConfig) -> Keys:
    return Keys(KeyConfig(key=entry) if isinstance(entry, str) else entry for entry in entries)


def loaded(folder: Path, name: str, text: str) -> Keys:
    """The keys of a file."""
    (folder / name).write_text(text)
    return Keys.load(AuthConfig(keys_file=str(folder / name)))


PRESENTED = [("Bearer secret", None), ("bearer  secret ", None), (None, "secret"), ("Bearer secret", "wrong")]


@every(("authorization", "api_key"), [*PRESENTED, ("Basic x", "secret")])
@every("entry", ["secret", "secret\n", hash_key("secret"), "sha256:" + hash_key("secret")[7:].upper()])
def test_a_key_is_known_plain_or_hashed(entry: str, authorization: str | None, api_key: str | None) -> None:
    found = keys("other", entry).check(authorization, api_key)
    assert found is not None
    assert found.owner == hashlib.sha256(b"secret").hexdigest()


@every(
    ("authorization", "api_key"),
    [(None, None), ("", None), ("Bearer", None), ("Bearer wrong", None), ("Bearer wrong", "secret"), ("x", "")],
)
def test_others_are_refused(authorization: str | None, api_key: str | None) -> None:
    with pytest.raises(GatewayError) as caught:
        keys("secret").check(authorization, api_key)
    assert (caught.value.status, caught.value.code) == (401, "invalid_api_key")
    assert "secret" not in caught.value.message


def test_the_hash_itself_is_no_key() -> None:
    hashed = hash_key("secret")
    for presented in (hashed, hashed.removeprefix("sha256:")):
        with pytest.raises(GatewayError):
            keys(hashed).check(f"Bearer {presented}", None)


def test_no_keys_ask_for_none() -> None:
    assert not keys()
    assert keys().check(None, None) is None


def test_neither_a_key_nor_its_hash_is_shown() -> None:
    shown = repr(KeyConfig(key="hunter2", name="alice")) + repr(keys("hunter2"))
    assert "hunter2" not in shown


def test_a_key_file_of_lines(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(f"# ours\none  # the first\n\n{hash_key('two')}\n")
    found = Keys.load(AuthConfig(keys=(KeyConfig(key="three"), KeyConfig(key="")), keys_file=str(file)))
    for key in ("one", "two", "three"):
        assert found.check(f"Bearer {key}", None)


@pytest.mark.parametrize("suffix", ["yaml", "yml", "json"])
@pytest.mark.parametrize("wrapped", [False, True])
def test_a_key_file_with_limits(tmp_path: Path, suffix: str, wrapped: bool) -> None:
    listed = ["one", {"key": hash_key("two"), "name": "two", "tokens_per_min": 50, "routes": ["small"]}, ""]
    found = loaded(tmp_path, f"keys.{suffix}", json.dumps({"keys": listed} if wrapped else listed))
    one, two = found.check("Bearer one", None), found.check("Bearer two", None)
    assert one is not None
    assert two is not None
    assert (one.name, one.limit, one.routes) == (None, RateLimitConfig(), None)
    assert (two.name, two.limit) == ("two", RateLimitConfig(tokens_per_min=50))
    assert one.may_use("large")
    assert two.may_use("small")
    with pytest.raises(GatewayError) as caught:
        two.require("large", "big-model")
    assert (caught.value.status, caught.value.code) == (403, "model_not_allowed")
    assert '"big-model"' in caught.value.message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[{name: a}]", "keys.yaml.keys[0].key: required"),
        ("[{key: hunter2, tokens: 5}]", "keys.yaml.keys[0].tokens: unknown key"),
        ("[{key: hunter2, tokens_per_min: much}]", "keys.yaml.keys[0].tokens_per_min: expected"),
        ("[{key: hunter2, tokens_per_min: -1}]", "keys.yaml: keys[0].tokens_per_min: expected at least 0"),
        ("{keys: [], keys_file: x}", "keys.yaml: unknown key 'keys_file'"),
        ("hunter2", "keys.yaml.keys: expected a list"),
    ],
)
def test_mistakes_in_a_key_file(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, "keys.yaml", text)
    assert str(caught.value).startswith(message)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "text"), [("keys.json", '[{"key": "hunter2",}]'), ("keys.yaml", "- {key: hunter2, name: [}")]
)
def test_a_key_file_that_cannot_be_read(tmp_path: Path, name: str, text: str) -> None:
    with pytest.raises(ValueError, match=rf"^{name}: .*line 1") as caught:
        loaded(tmp_path, name, text)
    assert "hunter2" not in str(caught.value)
    assert caught.value.__suppress_context__


def test_a_key_that_is_there_twice() -> None:
    with pytest.raises(ValueError, match=r'^the same key is listed twice \("b"\)$'):
        keys("one", KeyConfig(key=hash_key("one"), name="b"))


def test_the_command_line_makes_and_hashes_keys() -> None:
    done = CliRunner().invoke(main, ["keys", "hash"], input="secret\n")
    assert (done.exit_code, done.output) == (0, hash_key("secret") + "\n")
    assert CliRunner().invoke(main, ["keys", "hash"], input="\n").exit_code == 1
    made = [CliRunner().invoke(main, ["keys", "new"]).output.split() for _ in range(2)]
    assert [hashed for _, hashed in made] == [hash_key(key) for key, _ in made]
    assert made[0] != made[1]
    assert len(new_key()) > 64
