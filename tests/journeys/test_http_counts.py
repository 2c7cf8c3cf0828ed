"""Tokens that clients name: they are what was spent, and never what lets a prompt outgrow its budget."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tenuto.context import TokenCounter
from tenuto.llm import ScriptedModel
from tests.chats import SMALL, helper
from tests.journeys.http_service import ANN, HttpService, at, http_service, says

pytestmark = pytest.mark.requirement("B16")


# Two tokens and more to a character, and a count that could still be true of plain words.
RARE = "龘靐齉爩麤鱻灪厵" * 12
LOW = len(RARE) // 7 + 1
COUNTER = TokenCounter()
WAYS = pytest.mark.parametrize("way", ["messages", "words", "reply", "import"])


@pytest.fixture
def model() -> ScriptedModel:
    return ScriptedModel("Yes.")


@pytest.fixture
async def service(model: ScriptedModel) -> AsyncIterator[HttpService]:
    async with http_service(models={"mine": model}, model="mine", assistants=[helper(prompt=SMALL)]) as service:
        yield service


async def sent(service: HttpService, way: str, message: dict[str, Any], times: int = 1) -> str:
    """Send messages through one of the doors; tells the session they are in."""
    messages = [message] * times
    if way == "import":
        head = {"format": "tenuto.session", "version": 1, "session": {"title": "Trip"}, "messages": messages}
        response = await service.http.post("/v1/sessions/import", headers=ANN, json=head)
        assert response.status_code == 201
        return str(response.json()["id"])
    await service.http.post("/v1/sessions", headers=ANN, json={"id": "s"})
    if way == "messages":
        await service.http.post(at("s", "messages"), headers=ANN, json={"messages": messages})
        return "s"
    words = messages if way == "words" else []
    body = (await service.http.post(at("s", "turns"), headers=ANN, json={"messages": words})).json()
    reply = messages if way == "reply" else []
    await service.http.post(f"/v1/turns/{body['turn_id']}/finish", headers=ANN, json={"messages": reply})
    return "s"


async def stored(service: HttpService, session: str) -> list[int]:
    page = (await service.http.get(at(session, "messages"), headers=ANN)).json()
    return [message["tokens"] for message in page["messages"]]


@WAYS
@pytest.mark.parametrize("named", [0, 1, LOW])
async def test_no_count_that_a_client_names_pushes_a_prompt_over_its_budget(
    service: HttpService, model: ScriptedModel, way: str, named: int
) -> None:
    session = await sent(service, way, says(RARE, tokens=named), times=8)

    said = {"message": "And now?", "session_id": session, "assistant": "helper"}
    reply = (await service.http.post("/v1/chat", headers=ANN, json=said)).json()

    # Afterwards it may be asked for a title or a summary as well.
    asked = next(asking for asking in model.requests if asking.messages[-1].text.endswith("And now?"))
    shown = sum(COUNTER.count_parts(message.parts) for message in asked.messages)
    assert shown <= reply["context"]["total"] <= reply["context"]["prompt_limit"]


@WAYS
async def test_a_count_that_is_too_low_is_stored_as_we_count_it(service: HttpService, way: str) -> None:
    session = await sent(service, way, says(RARE, tokens=LOW))

    assert await stored(service, session) == [COUNTER.count(RARE)]


@WAYS
@pytest.mark.parametrize("named", [0, 7, 9])
async def test_counts_that_are_high_enough_stay_and_a_missing_one_is_ours(
    service: HttpService, way: str, named: int
) -> None:
    """Other tokenizers count more, and an export comes back as it was."""
    session = await sent(service, way, says("Where do we start today?", tokens=named))

    assert COUNTER.count("Where do we start today?") == 6
    assert await stored(service, session) == [named or 6]


@pytest.mark.requirement("A6")
async def test_what_a_client_names_is_still_what_was_spent(service: HttpService) -> None:
    """Totals are the client's own figures; without `usage` those of its messages."""
    await sent(service, "messages", says(RARE, tokens=LOW))
    body = {"messages": [says(RARE, tokens=LOW)], "usage": {"tokens": 5}}
    await service.http.post(at("s", "messages"), headers=ANN, json=body)

    assert (await service.http.get(at("s"), headers=ANN)).json()["tokens"] == LOW + 5


async def test_a_long_message_is_counted_beside_other_requests(service: HttpService) -> None:
    """More than is counted at once."""
    text = RARE * 200

    await sent(service, "messages", says(text, tokens=len(text) // 7 + 1))

    assert await stored(service, "s") == [COUNTER.count(text)]
