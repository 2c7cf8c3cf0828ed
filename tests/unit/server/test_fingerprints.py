"""Digests of bodies for idempotency keys: the same however long a text is, and made beside other requests."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenuto.server import json_io
from tenuto.server.json_io import fingerprint, key_fingerprint, without_ids_and_times
from tenuto.server.requests import AttachmentBody

# What a piece may cut apart: escapes, and characters of several bytes.
ODD = st.sampled_from(['"', "\\", "\n", "é", "门", "\N{ROCKET}", "\u2028", "a"])


@settings(max_examples=12)
@given(st.lists(ODD, min_size=1, max_size=7), st.text(max_size=20))
async def test_a_long_text_is_digested_as_if_it_were_one(unit: list[str], short: str) -> None:
    long = "".join(unit) * (2 * json_io._DIGESTED_AT_ONCE // len(unit) + 1)
    body = {"b": [short, long, {"long": long + "!", "a": 1.5}], "a": None}

    assert await key_fingerprint("key", body) == fingerprint(body)


async def test_a_picture_is_digested_beside_other_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = []
    digest = json_io._digest_in_pieces

    def note(*args: Any) -> str:
        threads.append(threading.current_thread())
        return digest(*args)

    monkeypatch.setattr(json_io, "_digest_in_pieces", note)
    body = ["Hi", [AttachmentBody(data="AAAA" * 100_000, media_type="image/png")]]

    assert await key_fingerprint("key", body) == fingerprint(body)
    assert [thread is threading.main_thread() for thread in threads] == [False]
    assert await key_fingerprint(None, body) is None
    assert len(threads) == 1


def test_ids_and_times_of_messages_are_no_part_of_what_is_said() -> None:
    said = {"messages": [{"id": "1", "sent_at": "now", "text": "Hi"}], "producer": {"id": "p"}}

    assert without_ids_and_times(said) == {"messages": [{"text": "Hi"}], "producer": {"id": "p"}}
    assert without_ids_and_times([{"id": "1", "text": "Hi"}, "odd"]) == [{"text": "Hi"}, "odd"]
