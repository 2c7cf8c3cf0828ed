"""Scanning stored data and erasing users: what is found, what is removed, and the receipt."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta

import msgspec
import pytest
from msgspec.structs import replace

import tenuto
from tenuto.access import ApiKeys
from tenuto.app import Tenuto
from tenuto.errors import Invalid, SessionNotFound, Unavailable
from tenuto.model import AppendBatch, Changes, Draft, FinishTurn, Page, Scope
from tenuto.model.message import SUMMARY, Role
from tenuto.model.privacy import Mode, PrivacyPolicy, Sink
from tenuto.model.scope import user_digest
from tenuto.model.session import NewSession
from tenuto.ports import utc_now
from tenuto.privacy.compliance.scan import Report, Scanner
from tenuto.sessions import SessionEvent
from tests.clock import FakeClock
from tests.doubles import MemoryStore
from tests.redactors import MASTER_KEY, redactor_over
from tests.samples import ACME, ANN, BOB, answers, fresh, opening, says, trace_of

MAIL = "write to ann@example.com"
GROUP = Scope(tenant="acme", channel="lark", chat="oc_1")


@dataclass
class Old:
    """A store filled before there was a policy: two live messages, two that a summary covers, all private."""

    store: MemoryStore

    async def filled(self, session_id: str = "s") -> None:
        words = (says("my card is 4242 4242 4242 4242"), answers("thanks, ann@example.com"))
        await self.store.sessions.append(
            ANN, session_id, AppendBatch(id=fresh("b"), messages=words, create=NewSession())
        )
        part = {"type": SUMMARY, "text": "card 4242 4242 4242 4242", "through": 2, "through_id": words[1].id}
        entry = says("", Role.ITEM, parts=(part,))
        await self.store.sessions.append(ANN, session_id, AppendBatch(id=fresh("b"), messages=(entry,)))
        turn = await self.store.sessions.begin_turn(ANN, opening(session_id, MAIL))
        trace = trace_of(turn, request=MAIL)
        changes = Changes(title="Mail to ann@example.com", context={"phone": "13800138000"})
        await self.store.sessions.finish_turn(turn, FinishTurn(reply=(answers("done"),), trace=trace, changes=changes))


@pytest.fixture
async def store() -> MemoryStore:
    """With an old session."""
    store = MemoryStore()
    await Old(store).filled()
    return store


@pytest.fixture
async def app() -> AsyncIterator[Tenuto]:
    async with tenuto.open("memory://") as app:
        yield app


async def said_in_group(app: Tenuto, *words: Draft) -> None:
    """Words of several people in a session of their own."""
    await app.store.sessions.append(GROUP, "g", AppendBatch(id=fresh("b"), messages=words, create=NewSession()))


async def report_of(scanner: Scanner, scope: Scope = ACME, *, fix: bool = False) -> Report:
    return [report async for report in scanner.scan(scope, fix=fix)][-1]


@pytest.mark.requirement("A14")
@pytest.mark.parametrize(
    ("past", "messages", "violations"),
    [
        (Mode.KEEP, {Sink.MESSAGE: {"PHONE": 1, "EMAIL": 2, "CC": 1}}, 3),
        (Mode.REDACT, {Sink.MESSAGE: {"PHONE": 1, "EMAIL": 1}, Sink.PAST: {"CC": 1, "EMAIL": 1}}, 5),
    ],
)
async def test_a_scan_counts_by_sink_and_type_and_changes_nothing(
    store: MemoryStore, past: Mode, messages: dict[Sink, dict[str, int]], violations: int
) -> None:
    """What is kept when a summary covers it is a message, and violates nothing that a message does not."""
    before = (await store.sessions.messages(ANN, "s", Page(limit=50))).messages

    report = await report_of(Scanner(store=store, redactor=redactor_over(store, PrivacyPolicy(past=past))))

    assert {sink: dict(names) for sink, names in report.matches.items()} == {
        **messages,
        Sink.TITLE: {"EMAIL": 1},
        Sink.SUMMARY: {"CC": 1},
        Sink.TRACE: {"EMAIL": 1},
    }
    assert (report.sessions, report.violations, report.fixed) == (1, violations, 0)
    assert (await store.sessions.messages(ANN, "s", Page(limit=50))).messages == before


async def test_mending_applies_the_policy_and_a_second_look_finds_nothing_against_it(store: MemoryStore) -> None:
    clock = FakeClock()
    scanner = Scanner(store=store, redactor=redactor_over(store, PrivacyPolicy(past=Mode.REDACT)), clock=clock)

    await report_of(scanner, fix=True)
    again = await report_of(scanner)

    assert again.violations == 0
    log = (await store.sessions.messages(ANN, "s", Page(limit=50))).messages
    assert [message.text for message in log] == [
        "my card is [REDACTED_CC]", "thanks, [REDACTED_EMAIL]", "", MAIL, "done"
    ]  # fmt: skip
    marks = [message.metadata.get("redacted_at") for message in log if message.text]
    assert marks == [clock().isoformat()] * 2 + [None] * 2, "what was changed after it was stored says so"
    session = await store.sessions.get(ANN, "s")
    assert session.title == "Mail to [REDACTED_EMAIL]"
    assert session.context == {"phone": "13800138000"}, "live, and kept by this policy"
    assert (await store.traces.traces(ANN, "s"))[0].request == "write to [REDACTED_EMAIL]"


async def test_mending_puts_values_of_live_words_into_the_vault_where_the_policy_says_so(store: MemoryStore) -> None:
    redactor = redactor_over(store, PrivacyPolicy(message=Mode.PSEUDONYM))

    await report_of(Scanner(store=store, redactor=redactor), fix=True)

    assert (await store.sessions.messages(ANN, "s", Page(limit=2))).messages[0].text == "write to [EMAIL_1]"
    assert (await store.sessions.get(ANN, "s")).context == {"phone": "[PHONE_1]"}
    assert redactor.vault is not None
    assert await redactor.vault.values(await store.sessions.get(ANN, "s")) == {
        "[EMAIL_1]": "ann@example.com",
        "[PHONE_1]": "13800138000",
        "[CC_1]": "4242 4242 4242 4242",
    }


async def test_mending_twice_is_mending_once_and_no_mark_loses_its_value() -> None:
    async with tenuto.open("memory://", privacy_message="pseudonym", privacy_key=MASTER_KEY) as app:
        turn = await app.begin(ANN, "ann@example.com")
        await app.finish(turn, "noted")
        await app.sessions.patch(ANN, turn.session.id, Changes(context={"mail": "bob@example.com"}))

        for _ in range(2):
            reports = [report async for report in app.privacy.scan(ACME, fix=True, by="operator")]
            assert reports[-1].fixed == 0
        page = await app.sessions.messages(ANN, turn.session.id, Page(limit=2))
        assert page.messages[0].text == "[EMAIL_1]"
        assert page.session.context == {"mail": "[EMAIL_2]"}
        revealed = await app.privacy.reveal(ANN, turn.session.id, ["[EMAIL_1]", "[EMAIL_2]"], by="operator")
        assert revealed == {"[EMAIL_1]": "ann@example.com", "[EMAIL_2]": "bob@example.com"}


async def test_a_title_that_grows_by_its_marks_is_cut_and_stops_nothing(store: MemoryStore) -> None:
    await store.sessions.patch(ANN, "s", Changes(title="a@b.io " * 70))

    report = await report_of(Scanner(store=store, redactor=redactor_over(store)), fix=True)

    assert report.sessions == 1
    assert (await store.sessions.get(ANN, "s")).title.startswith("[REDACTED_EMAIL] [REDACTED_EMAIL]")


async def test_a_session_that_is_used_meanwhile_is_looked_at_all_the_same() -> None:
    clock = FakeClock()
    store = MemoryStore(clock=clock)
    for number in range(130):
        clock.advance(timedelta(seconds=1))
        await Old(store).filled(f"s{number}")
    oldest = "s0"
    seen = 0
    async for report in Scanner(store=store, redactor=redactor_over(store)).scan(ACME):
        if report.sessions == 50 and not seen:
            clock.advance(timedelta(seconds=1))
            await store.sessions.patch(ANN, oldest, Changes(attributes={"used": True}))
            seen = 1
    assert report.sessions == 130


async def filled(app: Tenuto) -> None:
    for scope in (ANN, BOB):
        turn = await app.begin(scope, f"{scope.user}@example.com says hello", session_id=None)
        await app.finish(turn, "hello")
        await app.store.state.write_state(scope, "preferences", "tone", {"said": f"{scope.user} likes tea"})


async def test_erasing_takes_what_is_theirs_and_nothing_else() -> None:
    heard: list[SessionEvent] = []

    async def listen(event: SessionEvent) -> None:
        heard.append(event)

    async with tenuto.open("memory://", privacy_message="pseudonym", privacy_key=MASTER_KEY) as app:
        app.add_listener(listen)
        await filled(app)
        await ApiKeys(store=app.store.state, clock=utc_now).create(tenant="acme", user="ann", name="ann's laptop")

        receipt = await app.privacy.erase(ANN, by="operator")

        assert receipt.counts["sessions"] == 1
        assert receipt.counts["messages"] == 2
        assert receipt.counts["states"] == 1
        assert receipt.counts["api_keys"] == 1
        assert receipt.counts["vault_values"] == 1
        assert receipt.user_digest == user_digest("acme", "ann")
        unsigned = replace(receipt, user_digest="", public_key="", signature="")
        assert "ann" not in str(msgspec.to_builtins(unsigned))
        assert (await app.sessions.stats(ANN)).sessions == 0
        assert await app.store.state.read_state(ANN, "preferences", "tone") is None
        assert (await app.sessions.stats(BOB)).sessions == 1
        assert await app.store.state.read_state(BOB, "preferences", "tone") is not None
        assert [event.kind for event in heard][-1] == "deleted"
        keys = await ApiKeys(store=app.store.state, clock=utc_now).list()
        assert [(key.user, key.name, key.revoked) for key in keys] == [(None, "", True)]
        assert [note.act for note in await app.privacy.audit.notes(ACME)] == ["erased"]


async def test_in_talks_of_others_the_persons_words_go_and_the_talk_stays(app: Tenuto) -> None:
    words = (says("I am at ann@example.com", speaker="ann"), says("me too", speaker="bob"), answers("fine"))
    await said_in_group(app, *words)

    receipt = await app.privacy.erase(ANN, by="operator")

    log = (await app.store.sessions.messages(GROUP, "g", Page(limit=10))).messages
    assert [(message.text, message.speaker) for message in log] == [
        ("[ERASED]", None),
        ("me too", "bob"),
        ("fine", None),
    ]
    assert receipt.counts["shared_messages"] == 1
    assert "answers to other members" in receipt.limits


async def test_values_that_went_with_a_persons_words_are_counted() -> None:
    async with tenuto.open("memory://", privacy_message="pseudonym", privacy_key=MASTER_KEY) as app:
        words = (says("I am at ann@example.com", speaker="ann"), says("I am at bob@example.com", speaker="bob"))
        await said_in_group(app, *words)

        receipt = await app.privacy.erase(ANN, by="operator")

        assert (receipt.counts["shared_messages"], receipt.counts["vault_values"]) == (1, 1)


async def test_what_tools_left_in_a_group_goes_with_any_of_its_speakers(app: Tenuto) -> None:
    """Each answer passes on the tool state of the one before, so its owner is unknown."""
    state = {"state": {"goods": {"wish": "for Ann"}}, "model": "offline"}
    anns = (says("a wish", speaker="ann"), answers("noted", metadata=state))
    words = (*anns, says("hello", speaker="bob"), answers("hello", metadata=state))
    await said_in_group(app, *words)

    await app.privacy.erase(ANN, by="operator")

    log = (await app.store.sessions.messages(GROUP, "g", Page(limit=10))).messages
    assert [message.metadata for message in log] == [{}, {"model": "offline"}, {}, {"model": "offline"}]


async def test_what_was_noted_of_a_person_in_a_group_goes_with_their_words() -> None:
    anns = replace(GROUP, user="ann")
    async with tenuto.open("memory://", max_messages=4) as app:
        first = await app.ask(anns, "Ann Lee here, ann@example.com", profile={"name": "Ann Lee"})
        await app.sessions.patch(anns, first.session_id, Changes(context={"profile": {"name": "Ann Lee"}}))
        for words in ("one", "two", "three"):
            await app.ask(replace(GROUP, user="bob"), words, session_id=first.session_id)
        traces = await app.store.traces.traces(GROUP, first.session_id, 10)
        assert [trace.request.startswith("Ann Lee") for trace in traces] == [False, False, False, True]

        receipt = await app.privacy.erase(ANN, by="operator")
        again = await app.privacy.erase(ANN, by="operator")

        traces = await app.store.traces.traces(GROUP, first.session_id, 10)
        assert [trace.request for trace in traces] == ["three", "two", "one", "[ERASED]"]
        assert "profile" not in (await app.sessions.get(GROUP, first.session_id)).context
        went = {what: many for what, many in receipt.counts.items() if many}
        assert (went, receipt.compaction) == ({"traces": 1, "profiles": 1}, "done"), "their bytes, too"
        assert sum(again.counts.values()) == 0


async def test_a_turn_under_way_stores_nothing_of_the_erased(app: Tenuto) -> None:
    turn = await app.begin(ANN, "ann@example.com is mine")

    await app.privacy.erase(ANN, by="operator")

    with pytest.raises(tenuto.errors.TenutoError):
        await app.finish(turn, "noted")
    with pytest.raises(SessionNotFound):
        await app.sessions.get(ANN, turn.session.id)


async def test_nobody_is_erased_without_a_name(app: Tenuto) -> None:
    with pytest.raises(Invalid):
        await app.privacy.erase(ACME, by="operator")


async def test_nothing_is_removed_that_no_receipt_could_be_given_for(
    app: Tenuto, monkeypatch: pytest.MonkeyPatch
) -> None:
    await filled(app)

    async def fails() -> None:
        raise Unavailable("signing key")

    monkeypatch.setattr(app.privacy.signer, "ready", fails)
    with pytest.raises(Unavailable):
        await app.privacy.erase(ANN, by="operator")

    assert (await app.sessions.stats(ANN)).sessions == 1


async def test_bytes_that_wait_to_be_cleared_are_told_of_again(app: Tenuto) -> None:
    await filled(app)
    told = [(await app.privacy.erase(scope, by="operator")).compaction for scope in (ANN, BOB, BOB)]
    assert told == ["done", "later", "later"]
