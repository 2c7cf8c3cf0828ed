"""Store addresses for Redis and Valkey: what they may say, and what is refused."""

from __future__ import annotations

import pytest

from tenuto.errors import InvalidSetting
from tenuto.stores.redis._cluster import key_slot
from tenuto.stores.redis._url import Credential, DeploymentMode, Endpoint, parse


def test_a_plain_address_names_host_port_and_database() -> None:
    address = parse("redis://db.example:6380/3")

    assert (address.shape, address.endpoints, address.db) == (
        DeploymentMode.STANDALONE,
        (Endpoint("db.example", 6380),),
        3,
    )
    assert address.tls is None


def test_what_is_left_out_has_a_default() -> None:
    assert parse("valkey://").endpoints == (Endpoint("localhost", 6379),)
    assert parse("redis+sentinel://a/main").endpoints == (Endpoint("a", 26379),)
    assert parse("redis://[::1]").endpoints == (Endpoint("::1", 6379),)
    assert parse("redis://[::1]:7000").endpoints == (Endpoint("::1", 7000),)


def test_a_password_may_hold_any_character() -> None:
    address = parse("redis://ann:p%40ss%2Fw%3Ard@h")

    assert address.credential == Credential(username="ann", password="p@ss/w:rd")
    assert "p@ss" not in repr(address)
    assert parse("redis://:secret@h").credential == Credential(password="secret")


def test_a_cluster_address_names_several_servers() -> None:
    address = parse("valkey+cluster://a:1,b:2,c")

    assert address.shape is DeploymentMode.CLUSTER
    assert address.endpoints == (Endpoint("a", 1), Endpoint("b", 2), Endpoint("c", 6379))


def test_a_sentinel_address_names_service_and_database() -> None:
    address = parse("redis+sentinel://u:p@a:1,b:2/main/4?sentinel_password=s")

    assert (address.service, address.db) == ("main", 4)
    assert address.credential == Credential(username="u", password="p")
    assert address.sentinel_credential == Credential(password="s")


def test_tls_is_asked_for_by_scheme_or_option() -> None:
    assert parse("rediss://h").tls is not None
    assert parse("valkeys+cluster://h").tls is not None
    assert parse("redis+sentinel://h/main?tls=true").tls is not None


@pytest.mark.requirement("T20")
@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("http://h", "unknown scheme"),
        ("redis+ring://h", "unknown scheme"),
        ("redis://h/zero", "database number"),
        ("redis://h/0/1", "database number"),
        ("redis://h:port", "port"),
        ("redis://h:70000", "port"),
        ("redis+cluster://h/1", "database 0 only"),
        ("redis+sentinel://h", "names its service"),
        ("redis://h?retries=9", "unknown option 'retries'"),
    ],
)
def test_a_wrong_address_is_refused_with_a_sentence(url: str, sentence: str) -> None:
    """Contradictory or unknown settings are refused at start."""
    with pytest.raises(InvalidSetting, match=sentence):
        parse(url)


def test_slots_follow_the_hash_tag() -> None:
    assert key_slot(b"123456789") == 0x31C3 % 16384
    assert key_slot(b"a:{user1}:head") == key_slot(b"b:{user1}:log") == key_slot(b"user1")
    assert key_slot(b"a{}b") != key_slot(b"")
