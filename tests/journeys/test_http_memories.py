"""What is remembered beyond a session, over HTTP: recalled, explained, edited, forgotten."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tenuto.chat import loading
from tenuto.errors import Invalid
from tenuto.model import Scope
from tenuto.recall.records import StoredMemory
from tests.journeys.http_service import ANN, BOB, EVE, HttpService, code, http_service
from tests.journeys.server_process import WAIT, ServerProcess, running_server

pytestmark = pytest.mark.requirement("A11", "A19", "C13", "D14")


HOME = "I live in Bologna with my two cats."
MEMORIES = "/v1/memories"


async def add(service: HttpService, text: str, who: dict[str, str] = ANN, **body: Any) -> dict[str, Any]:
    """A memory that was written by hand."""
    added = await service.http.post(MEMORIES, headers=who, json={"text": text, **body})
    assert added.status_code in (200, 201), added.text
    memory: dict[str, Any] = added.json()
    return memory


async def listed(service: HttpService, who: dict[str, str] = ANN, **asked: Any) -> list[str]:
    """The texts of a listing."""
    response = await service.http.get(MEMORIES, headers=who, params=asked)
    return [memory["text"] for memory in response.json()["memories"]]


async def search(service: HttpService, query: str, who: dict[str, str] = ANN, **body: Any) -> list[str]:
    """The texts that a search finds."""
    response = await service.http.post(f"{MEMORIES}/search", headers=who, json={"query": query, **body})
    assert response.status_code == 200, response.text
    return [hit["memory"]["text"] for hit in response.json()["hits"]]


def ask(server: ServerProcess, text: str, who: dict[str, str] = ANN) -> dict[str, Any]:
    """The answer in a new session."""
    answered: dict[str, Any] = server.http.post("/v1/chat", headers=who, json={"message": text}).json()
    return answered


def wait_for(answered: Callable[[], list[Any]]) -> list[Any]:
    """What a server answers once it has something: capture follows the reply."""
    until = time.monotonic() + WAIT
    while not (found := answered()) and time.monotonic() < until:
        time.sleep(0.05)
    return found


def recalled_ids(reply: dict[str, Any]) -> list[str]:
    """The memories that the manifest of a reply lists."""
    return [entry["id"] for entry in reply["context"]["entries"] if entry["kind"] == "memory"]


@pytest.mark.requirement("C13", "D11")
def test_what_was_said_before_a_kill_is_recalled_until_it_is_forgotten(tmp_path: Path) -> None:
    """By the next process, in another session, with a manifest that names it; and never for another user."""
    store = tmp_path / "chat.db"

    def memories(server: ServerProcess, who: dict[str, str] = ANN) -> list[Any]:
        found: list[Any] = server.http.get(MEMORIES, headers=who).json()["memories"]
        return found

    with running_server(store, TENUTO_EMBEDDER="local") as first:
        said = ask(first, HOME)
        (remembered,) = wait_for(lambda: memories(first))
        first.end(signal.SIGKILL)

    with running_server(store, TENUTO_EMBEDDER="local") as second:
        answered = ask(second, "Where do I live?")
        (hit,) = second.http.post(f"{MEMORIES}/search", headers=ANN, json={"query": "Where do I live?"}).json()["hits"]
        other = ask(second, "Where do I live?", BOB)
        foreign = second.http.delete(f"{MEMORIES}/{remembered['id']}", headers=BOB)
        response = second.http.delete(f"{MEMORIES}/{remembered['id']}", headers=ANN)
        found = second.http.post(f"{MEMORIES}/search", headers=ANN, json={"query": "Bologna"}).json()["hits"]
        after = ask(second, "Where do I live?")

    assert (remembered["text"], remembered["session_id"], remembered["seqs"]) == (HOME, said["session_id"], [1])
    assert answered["session_id"] != said["session_id"]
    assert HOME in answered["answer"]
    assert recalled_ids(answered) == [remembered["id"]]
    assert (hit["memory"], hit["score"] > 0, hit["scores"]["lexical"] > 0) == (remembered, True, True)
    assert hit["scores"]["terms"] == ["live"]
    assert (recalled_ids(other), "Bologna" in other["answer"]) == ([], False)
    assert code(foreign) == (404, "memory_not_found")
    assert (response.status_code, found, recalled_ids(after), "Bologna" in after["answer"]) == (204, [], [], False)


async def test_memories_are_added_listed_and_changed_on_every_store(store_url: str) -> None:
    async with http_service(store=store_url) as service:
        home = await add(service, HOME)
        await add(service, "My sister is called Mia.", subject="Sister")
        await add(service, "Keep answers short.", kind="preference")
        again = await service.http.post(MEMORIES, headers=ANN, json={"text": HOME})
        edited = await service.http.patch(
            f"{MEMORIES}/{home['id']}", headers=ANN, json={"text": "I live in Ferrara.", "kind": "fact"}
        )
        pages: list[list[str]] = []
        cursor = None
        while not pages or cursor:
            page = await service.http.get(
                MEMORIES, headers=ANN, params={"limit": 1, **({"cursor": cursor} if cursor else {})}
            )
            pages.append([memory["text"] for memory in page.json()["memories"]])
            cursor = page.json()["cursor"]

        assert (again.status_code, again.json()["mentions"], again.json()["id"]) == (200, 2, home["id"])
        assert edited.json() == (await service.http.get(f"{MEMORIES}/{home['id']}", headers=ANN)).json()
        assert [text for texts in pages for text in texts] == await listed(service)
        assert set(await listed(service)) == {"I live in Ferrara.", "My sister is called Mia.", "Keep answers short."}
        assert await listed(service, kind="preference") == ["Keep answers short."]
        assert (await search(service, "Ferrara"))[0] == "I live in Ferrara."
        assert HOME not in await search(service, "Bologna")


async def test_a_later_memory_of_a_subject_takes_the_place_of_the_earlier(service: HttpService) -> None:
    old = await add(service, "I work at Ducati.", subject="employer")
    new = await add(service, "I work at Lamborghini.", subject="Employer")

    before = (await service.http.get(f"{MEMORIES}/{old['id']}", headers=ANN)).json()

    assert (before["superseded_by"], before["valid_until"]) == (new["id"], new["said_at"])
    assert await listed(service) == ["I work at Lamborghini."]
    assert await listed(service, superseded=True) == ["I work at Lamborghini.", "I work at Ducati."]


async def test_preferences_are_set_as_a_whole(service: HttpService) -> None:
    """They are memories; what stays keeps its id, and what is private is redacted like any memory."""
    address = f"{MEMORIES}/preferences"
    first = await service.http.put(
        address, headers=ANN, json={"preferences": ["Answer in Italian.", "Be brief, please."]}
    )
    second = await service.http.put(
        address, headers=ANN, json={"preferences": ["Be brief, please.", "Write to ann@example.com about bugs."]}
    )
    response = await service.http.put(address, headers=ANN, json={"preferences": ["Be kind.", " "]})
    read = await service.http.get(address, headers=ANN)

    assert [one["text"] for one in first.json()["preferences"]] == ["Answer in Italian.", "Be brief, please."]
    assert second.json()["preferences"][0] == first.json()["preferences"][1]
    assert second.json()["preferences"][1]["text"] == "Write to [REDACTED_EMAIL] about bugs."
    assert code(response) == (400, "invalid")
    assert read.json() == second.json()
    assert await listed(service, kind="preference", who=BOB) == []


@pytest.mark.requirement("D19")
async def test_memories_are_forgotten_by_id_by_session_and_all(service: HttpService) -> None:
    talk = (await service.http.post("/v1/chat", headers=ANN, json={"message": HOME})).json()
    await service.tenuto.upkeep.drain()
    added = [await add(service, f"I own {many} old books about ships.") for many in ("six", "seven", "eight")]
    await add(service, "I am Bob, and I play the flute.", who=BOB)
    ids = ",".join(one["id"] for one in added[:2])

    async def forget(**asked: Any) -> Any:
        return (await service.http.delete(MEMORIES, headers=ANN, params=asked)).json()

    tried = await forget(ids=ids, dry_run=True)
    by_id = await forget(ids=ids)
    deleted = await service.http.delete(f"/v1/sessions/{talk['session_id']}", headers=ANN)
    kept = await listed(service)
    of_session = await forget(session_id=talk["session_id"])
    rest = await forget(all=True)

    assert (tried, by_id) == ({"forgotten": 2, "dry_run": True}, {"forgotten": 2, "dry_run": False})
    assert (deleted.status_code, set(kept)) == (204, {HOME, "I own eight old books about ships."})
    assert (of_session["forgotten"], rest["forgotten"]) == (1, 1)
    assert await listed(service, who=BOB) == ["I am Bob, and I play the flute."]


@pytest.mark.requirement("D12")
async def test_nobody_elses_memories_exist(service: HttpService) -> None:
    """Another user, another tenant, and a chat."""
    memory = await add(service, HOME)
    team = {"X-Tenant-ID": "acme", "X-Channel": "lark", "X-Chat-ID": "team"}

    for who in (BOB, EVE, team):
        assert await listed(service, who=who) == []
        assert await search(service, "Bologna", who=who) == []
        for method in ("GET", "DELETE", "PATCH"):
            response = await service.http.request(method, f"{MEMORIES}/{memory['id']}", headers=who)
            assert code(response) == (404, "memory_not_found"), (who, method)
    assert await listed(service) == [HOME]


async def test_a_credential_without_a_user_names_one(locked: HttpService) -> None:
    """Many people may stand behind it; a server that needs no credential serves one."""
    key, bound = await locked.key(), await locked.key(user="ann")

    without = await locked.http.get(MEMORIES, headers=key)
    named = await locked.http.post(MEMORIES, headers={**key, "X-User-ID": "ann"}, json={"text": HOME})
    own = await locked.http.get(MEMORIES, headers=bound)
    other = await locked.http.get(MEMORIES, headers={**bound, "X-User-ID": "bob"})
    unknown = await locked.http.get(MEMORIES)

    assert code(without) == (400, "invalid")
    assert "X-User-ID" in without.json()["detail"]
    assert named.status_code == 201
    assert [memory["text"] for memory in own.json()["memories"]] == [HOME]
    assert (code(other), code(unknown)) == ((403, "scope_mismatch"), (401, "invalid_credential"))


SAID = "我叫赵铁柱，我来自青岛，我有糖尿病。"
ASKED = "我来自哪里？"


def messages(text: str) -> list[dict[str, str]]:
    """One message as most APIs take it."""
    return [{"role": "user", "content": text}]


TALKS: dict[str, tuple[str, Callable[[str], dict[str, Any]]]] = {
    "general": ("/v1/chat", lambda text: {"message": text}),
    "legal": ("/v1/chat", lambda text: {"message": text, "assistant": "legal"}),
    "npc": ("/v1/npc/chat", lambda text: {"query": text, "npc_id": "guide_lin"}),
    "goods": ("/goods/qa", lambda text: {"question": text}),
    "completions": ("/v1/chat/completions", lambda text: {"model": "general", "messages": messages(text)}),
    "messages": ("/v1/messages", lambda text: {"model": "general", "max_tokens": 99, "messages": messages(text)}),
    "responses": ("/v1/responses", lambda text: {"model": "general", "input": text}),
    "ai sdk": (
        "/v1/ai-sdk/chat",
        lambda text: {
            "id": f"talk-{len(text)}",
            "messages": [{"id": "m", "role": "user", "parts": [{"type": "text", "text": text}]}],
        },
    ),
}


@pytest.mark.parametrize("bound", [None, {}, {"site": "museum"}], ids=["open", "tenant key", "site key"])
async def test_callers_without_a_user_share_no_memory(bound: dict[str, str] | None) -> None:
    """On every way to talk, and whatever the credential."""
    async with http_service(embedder="none", locked=bound is not None) as service:
        who = {} if bound is None else await service.key(**bound)
        ways = {way: TALKS[way] for way in (TALKS if bound is None else ("general", "npc", "responses"))}
        told = {way: await service.http.post(path, headers=who, json=body(SAID)) for way, (path, body) in ways.items()}
        await service.tenuto.upkeep.drain()
        asked = {
            way: await service.http.post(path, headers=who, json=body(ASKED)) for way, (path, body) in ways.items()
        }
        stored = [
            await service.tenuto.store.state.list_state(Scope(tenant=tenant, site=site, visitor=visitor), "memory")
            for tenant in ("local", "acme")
            for site in ("", "museum")
            for visitor in (False, True)
        ]

    assert {response.status_code for response in (*told.values(), *asked.values())} == {200}
    assert [way for way, response in asked.items() if "青岛" in response.text] == []
    assert not any(stored)


async def test_what_a_caller_without_a_user_said_is_recalled_in_its_own_session_alone() -> None:
    """After a compression, too."""
    async with http_service(embedder="none", compress_over=6, keep_verbatim=2) as service:

        async def ask(text: str, session: str) -> dict[str, Any]:
            response = await service.http.post("/v1/chat", json={"message": text, "session_id": session})
            await service.tenuto.upkeep.drain()
            return dict(response.json())

        for session in ("mine", "other"):
            await service.http.post("/v1/sessions", json={"id": session})
        await ask(HOME, "mine")
        for number in range(6):
            await ask(f"The train number {number} was late again.", "mine")
        own, other = await ask("Where do I live?", "mine"), await ask("Where do I live?", "other")

    assert "summary" in [entry["kind"] for entry in own["context"]["entries"]]
    assert "Bologna" in own["answer"]
    assert "Bologna" not in other["answer"]


@pytest.mark.parametrize("locked", [False, True], ids=["open", "tenant key"])
async def test_memories_without_a_user_are_refused_and_the_answer_says_why(locked: bool) -> None:
    async with http_service(embedder="none", locked=locked) as service:
        who = await service.key() if locked else {}
        asked: list[tuple[str, str, Any]] = [
            ("GET", "", None),
            ("POST", "", {"text": HOME}),
            ("POST", "/search", {"query": "home"}),
            ("GET", "/preferences", None),
            ("PUT", "/preferences", {"preferences": ["Answer in Italian."]}),
            ("DELETE", "?all=true", None),
            ("GET", "/some", None),
            ("PATCH", "/some", {"text": HOME}),
            ("DELETE", "/some", None),
        ]
        answers = [
            await service.http.request(verb, MEMORIES + path, headers=who, json=body) for verb, path, body in asked
        ]
        remembered = await service.tenuto.memories()
        with pytest.raises(Invalid, match="belong to a user"):
            await remembered.add(service.tenuto.scope(), HOME)

    assert {code(answer) for answer in answers} == {(400, "invalid")}
    assert all("X-User-ID" in answer.json()["detail"] for answer in answers)


@pytest.mark.parametrize("setting", [True, False])
async def test_the_setting_decides_about_callers_without_a_user(setting: bool) -> None:
    async with http_service(memories_without_user=setting, locked=setting) as service:
        who = await service.key() if setting else {}
        response = await service.http.get(MEMORIES, headers=who)

    assert response.status_code == (200 if setting else 400)


BAD: list[tuple[str, str, Any, str]] = [
    ("POST", "/search", {"query": ""}, "query"),
    ("POST", "/search", {"query": " \n "}, "query"),
    ("POST", "/search", {}, "query"),
    ("POST", "/search", {"query": "ab " * 34_000}, "10000"),
    ("POST", "/search", {"query": "a", "limit": 0}, "limit"),
    ("POST", "/search", {"query": "a", "limit": 101}, "limit"),
    ("POST", "/search", {"query": "a", "mmr_lambda": 1.1}, "mmr_lambda"),
    ("POST", "/search", {"query": "a", "kinds": ["guess"]}, "fact or preference or episode"),
    ("POST", "/search", {"query": "a", "since": "2026-01-01T00:00:00"}, "timezone"),
    ("POST", "/search", {"query": "a\0b"}, "NUL"),
    ("POST", "", {"text": ""}, "text"),
    ("POST", "", {"text": " "}, "text"),
    ("POST", "", {"text": "x" * 4001}, "4000"),
    ("POST", "", {"text": "x", "subject": "y" * 81}, "subject"),
    ("POST", "", {"text": "x", "kind": "guess"}, "fact or preference or episode"),
    ("GET", "?kind=guess", None, "fact or preference or episode"),
    ("GET", "?limit=0", None, "limit"),
    ("GET", "?cursor=bm9wZQ", None, "cursor"),
    ("GET", "?cursor=%E2%98%83", None, "cursor"),
    ("GET", "?cursor=MjAyNi0wMS0wMSB4", None, "cursor"),
    ("DELETE", "", None, "all=true"),
    ("DELETE", "?ids=a&all=true", None, "exactly one of"),
]


@pytest.mark.parametrize(("method", "path", "body", "names"), BAD)
async def test_bad_input_is_refused_with_its_reason(
    service: HttpService, method: str, path: str, body: Any, names: str
) -> None:
    response = await service.http.request(method, MEMORIES + path, headers=ANN, json=body)

    assert response.status_code == 400
    assert names in response.json()["detail"]


@pytest.mark.requirement("A19")
async def test_a_search_weighs_relevance_against_likeness_as_asked() -> None:
    """The same name in the library, HTTP, MCP and the terminal; 1 is relevance alone."""
    dogs = [
        "My dog Rex eats salmon and rice.",
        "My dog Rex eats salmon and peas daily.",
        "My old dog sleeps in the kitchen.",
    ]
    async with http_service(embedder="none") as service:
        for text in (*dogs, *(f"I have {n} green chairs." for n in range(9))):
            await add(service, text)
        found = {
            weight: await search(service, "What does my dog Rex eat?", limit=2, mmr_lambda=weight)
            for weight in (1, 0.1)
        }

    assert found == {1: dogs[:2], 0.1: [dogs[0], dogs[2]]}


@pytest.mark.requirement("C13")
async def test_turns_share_the_load_of_their_owners_memories_and_none_begins_it_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a restart a turn that does not wait to its end says so; a load per turn would never end."""
    given: dict[str, Any] = {"store": f"sqlite:///{tmp_path / 'chat.db'}", "embedder": "none"}
    async with http_service(**given) as service:
        home = await add(service, HOME)
    async with http_service(**given) as service:
        records, gate, loads = (await service.tenuto.memories())._cache._records, asyncio.Event(), 0
        load = records.load

        async def held(scope: Scope) -> AsyncIterator[StoredMemory]:
            nonlocal loads
            loads += 1
            await gate.wait()
            async for one in load(scope):
                yield one

        monkeypatch.setattr(records, "load", held)

        async def answer() -> dict[str, Any]:
            response = await service.http.post("/v1/chat", headers=ANN, json={"message": "Where do I live?"})
            answered: dict[str, Any] = response.json()
            return answered

        monkeypatch.setattr(loading, "_TIMEOUT_SECONDS", 0.05)
        early = [await answer(), await answer()]
        gate.set()
        monkeypatch.setattr(loading, "_TIMEOUT_SECONDS", float(WAIT))
        late = await answer()

    assert [turn["degraded"] for turn in (*early, late)] == [["recall"], ["recall"], []]
    assert [recalled_ids(turn) for turn in (*early, late)] == [[], [], [home["id"]]]
    assert loads == 1


async def test_a_query_of_emoji_finds_nothing_and_fails_nothing(service: HttpService) -> None:
    await add(service, HOME)

    response = await service.http.post(f"{MEMORIES}/search", headers=ANN, json={"query": "🙂🙃"})

    assert response.status_code == 200


async def test_nothing_is_added_where_memories_are_off() -> None:
    """What is stored from before can still be read and forgotten."""
    async with http_service(memories=False) as service:
        response = await service.http.post(MEMORIES, headers=ANN, json={"text": HOME})
        forgotten = await service.http.delete(MEMORIES, headers=ANN, params={"all": True})

        assert code(response) == (400, "invalid")
        assert "off" in response.json()["detail"]
        assert (await listed(service), forgotten.json()["forgotten"]) == ([], 0)


@pytest.mark.requirement("A27")
async def test_many_add_the_same_at_once_and_it_is_remembered_once(service: HttpService) -> None:
    async def once() -> httpx.Response:
        return await service.http.post(MEMORIES, headers=ANN, json={"text": HOME})

    answered = await asyncio.gather(*(once() for _ in range(8)))

    assert {response.json()["id"] for response in answered} == {answered[0].json()["id"]}
    assert await listed(service) == [HOME]
