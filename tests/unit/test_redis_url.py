"""The parts of a Redis URL, and the errors for a wrong one."""

from __future__ import annotations

import re

import pytest

from toolwire.support.redis_url import Address, RedisUrl, read_url

pytest.importorskip("redis")

from tests.cases import every
from toolwire.ratelimit.redis import RedisLedger
from toolwire.store.redis import RedisStore

HERE = Address("here", 1)


def test_a_server_alone_is_left_to_its_client() -> None:
    for url in ("redis://:secret@host/1", "rediss://host", "unix:///run/redis.sock?db=1", "whatever"):
        assert read_url(url) == RedisUrl("server", url)


def test_sentinels() -> None:
    url = read_url("redis+sentinel://me:s%40crt@one,[::1]:5,three:26380/my%20main/3?socket_keepalive=1&protocol=3")
    assert (url.kind, url.service, url.db) == ("sentinel", "my main", 3)
    assert url.nodes == (Address("one", 26379), Address("::1", 5), Address("three", 26380))
    assert url.at(Address("::2", 7)) == "redis://me:s%40crt@[::2]:7/3?socket_keepalive=1"
    assert url.sentinel(HERE) == "redis://here:1?socket_keepalive=1"
    assert url.place == "by the Sentinels at one:26379,[::1]:5,three:26380, my main/3"


def test_sentinels_with_a_password_of_their_own() -> None:
    url = read_url("REDISS+Sentinel://:a@one/main?sentinel_password=b%3A%2F&sentinel_username=w&ssl_ca_certs=/ca.pem")
    assert url.at(HERE) == "rediss://:a@here:1/0?ssl_ca_certs=%2Fca.pem"
    assert url.sentinel(HERE) == "rediss://w:b%3A%2F@here:1?ssl_ca_certs=%2Fca.pem"


@every("end", ["", "/", "/0", "?db=0"])
def test_a_cluster(end: str) -> None:
    url = read_url(f"redis+cluster://me:secret@one,two:7000{end}")
    assert (url.kind, url.nodes, url.db) == ("cluster", (Address("one", 6379), Address("two", 7000)), 0)
    assert url.at(HERE) == "redis://me:secret@here:1/0"
    assert url.place == "in the cluster at one:6379,two:7000"


def test_the_database_may_be_an_option() -> None:
    assert read_url("redis+sentinel://one/main?db=4").db == 4
    assert read_url("redis+sentinel://one/main/5?db=4").db == 5


@every(
    ("url", "message"),
    [
        ("redis+sentinel://", "number 1 of its 1 hosts is not HOST or HOST:PORT"),
        ("redis+sentinel://one,,three/main", "number 2 of its 3 hosts is not HOST or HOST:PORT"),
        ("redis+sentinel://one:0/main", "number 1 of its 1 hosts"),
        ("redis+cluster://one:65536", "number 1 of its 1 hosts"),
        ("redis+cluster://one:secret", "number 1 of its 1 hosts"),
        ("redis+cluster://::1", "number 1 of its 1 hosts"),
        ("redis+sentinel://me:sec/ret@one/main", "in a user or a password write @ , / ? # as %40 %2C %2F %3F %23"),
        ("redis+cluster://me:sec?ret@one", "in a user or a password write"),
        ("redis+sentinel://one", "the name of the service is missing: redis+sentinel://HOST:PORT,HOST:PORT/SERVICE/DB"),
        ("redis+sentinel://one/?db=1", "the name of the service is missing"),
        ("redis+sentinel://one/main/secret", "what follows the service is not the number of a database"),
        ("redis+sentinel://one/main/-1", "what follows the service is not the number of a database"),
        ("redis+cluster://one/secret", "what follows the hosts is not the number of a database"),
        ("redis+cluster://one/1", "a cluster has no numbered databases: leave the number out"),
        ("redis+cluster://one?db=2", "a cluster has no numbered databases"),
        (
            "redis+cluster://one?sentinel_password=secret",
            "`sentinel_password` is for Sentinels, and a cluster has none",
        ),
        ("redis+cluster://one?secret=1", "not the URL of a Redis server"),
        ("redis+sentinel://one/main?socket_timeout=secret", "not the URL of a Redis server"),
        ("redis+magic://one", "not the URL of a Redis server"),
    ],
)
def test_one_that_is_wrong(url: str, message: str) -> None:
    for make in (RedisStore, lambda url: RedisLedger(url, timeout_s=1)):
        with pytest.raises(ValueError, match=re.escape(message)) as caught:
            make(url)
        assert "secret" not in str(caught.value)
        assert "ret@" not in str(caught.value)
