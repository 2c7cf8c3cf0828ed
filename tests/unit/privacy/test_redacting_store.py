"""Stored data has passed the privacy policy, whatever the caller."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from tenuto.errors import SessionNotFound, TooManyPrivateValues, TurnLost, Unavailable
from tenuto.model import (
    AppendBatch,
    Changes,
    FinishTurn,
    ForkRequest,
    Page,
    Retention,
    Rewrite,
    Role,
    Scope,
    Session,
    Truncation,
    tool_call,
    tool_result,
)
from tenuto.model.message import SUMMARY
from tenuto.model.privacy import VAULT, CustomPattern, Mode, PrivacyPolicy, data_key_id
from tenuto.model.session import NewSession
from tenuto.model.turn import IdempotencyKey, ToolRun, Trace
from tenuto.privacy.crypto.keyring import load_key_ring
from tenuto.privacy.crypto.tenant_ciphers import TenantCiphers
from tenuto.privacy.detection import finder
from tenuto.privacy.redacting_store import RedactingStore
from tenuto.privacy.spellings import normalize_spelling
from tests.clock import FakeClock
from tests.doubles import FlatMemoryStore, MemoryStore
from tests.redactors import MASTER_KEY, redacting_store, redactor_over
from tests.samples import ACME, ANN, BOB, SENT_AT, answers, begin, fresh, says, talk, texts

pytestmark = pytest.mark.requirement("T10")


REDACTING = PrivacyPolicy(message=Mode.REDACT)
HIDING = PrivacyPolicy(message=Mode.PSEUDONYM)
MAIL = "write to ann@example.com"


async def values(store: RedactingStore, scope: Scope, session_id: str) -> dict[str, str]:
    vault = store.redactor.vault
    assert vault is not None
    return await vault.values(await store.sessions.get(scope, session_id))


@pytest.fixture
def inner() -> MemoryStore:
    """What stands behind `hiding`."""
    return MemoryStore()


@pytest.fixture
def hiding(inner: MemoryStore) -> RedactingStore:
    """Stores messages with pseudonyms."""
    return RedactingStore(store=inner, redactor=redactor_over(inner, HIDING))


@pytest.fixture
def redacting() -> RedactingStore:
    """Stores messages without private data."""
    return redacting_store(REDACTING)[1]


def traced(session_id: str, request: str, **fields: object) -> Trace:
    given = {"id": fresh("trace"), "session_id": session_id, "turn_id": "t", "number": 1, "began_at": SENT_AT}
    return Trace(**given, assistant="general", request=request, **fields)  # type: ignore[arg-type]


async def test_live_messages_are_kept_and_titles_and_traces_redacted_by_default() -> None:
    _, store = redacting_store()
    turn = await begin(store, ANN, "s", MAIL)
    runs = (ToolRun(name="look", arguments={"mail": "ann@example.com"}, output=[{"phone": "13800138000"}]),)
    closing = FinishTurn(
        reply=(answers("I wrote to ann@example.com"),),
        changes=Changes(title="Write to ann@example.com"),
        trace=traced("s", MAIL, answer="I wrote to ann@example.com", tools=runs, data={"card": "4242 4242 4242 4242"}),
    )

    await store.sessions.finish_turn(turn, closing)

    assert await texts(store, ANN, "s") == [MAIL, "I wrote to ann@example.com"]
    assert (await store.sessions.get(ANN, "s")).title == "Write to [REDACTED_EMAIL]"
    trace = await store.traces.trace(ANN, "s", 1)
    assert trace is not None
    assert trace.request == "write to [REDACTED_EMAIL]"
    assert trace.answer == "I wrote to [REDACTED_EMAIL]"
    assert trace.tools[0].arguments == {"mail": "[REDACTED_EMAIL]"}
    assert trace.tools[0].output == [{"phone": "[REDACTED_PHONE]"}]
    assert trace.data == {"card": "[REDACTED_CC]"}
    assert trace.redacted == {"EMAIL": 3, "PHONE": 1, "CC": 1}


async def test_a_summary_that_a_turn_brings_is_redacted_where_messages_are_kept() -> None:
    _, store = redacting_store()
    await talk(store, ANN, "s", "hello", "Hello.")
    summary = says("", Role.ITEM, parts=({"type": SUMMARY, "text": MAIL, "through": 2, "through_id": "m"},))

    turn = await begin(store, ANN, "s", user_messages=(summary,), create=None)

    assert [part["text"] for part in turn.user_messages[0].parts] == [MAIL]
    stored = (await store.sessions.messages(ANN, "s", Page(limit=1))).messages[0]
    assert [part["text"] for part in stored.parts] == ["write to [REDACTED_EMAIL]"]


async def test_a_live_turn_gets_its_words_as_they_were_said_while_the_log_is_redacted(
    redacting: RedactingStore,
) -> None:
    turn = await begin(redacting, ANN, "s", MAIL)

    assert turn.user_messages[0].text == MAIL
    assert turn.window[-1].text == MAIL
    assert await texts(redacting, ANN, "s") == ["write to [REDACTED_EMAIL]"]
    stored = (await redacting.sessions.messages(ANN, "s", Page(limit=1))).messages[0]
    assert stored.metadata == {"redacted": {"EMAIL": 1}}


async def test_a_turn_found_again_by_its_key_gets_its_words_as_they_were_said(redacting: RedactingStore) -> None:
    once = IdempotencyKey(key="k", fingerprint="f")
    first = await begin(redacting, ANN, "s", MAIL, idempotency_key=once)
    await redacting.sessions.finish_turn(first, FinishTurn(abandoned=True))

    again = await begin(redacting, ANN, "s", MAIL, idempotency_key=once)

    assert again.user_messages[0].text == MAIL
    assert again.user_messages[0].id == first.user_messages[0].id
    assert await texts(redacting, ANN, "s") == ["write to [REDACTED_EMAIL]"]


async def test_tool_calls_results_metadata_and_foreign_parts_are_looked_through(redacting: RedactingStore) -> None:
    parts = (
        tool_call("call_1", "send", {"to": "ann@example.com", "password": "hunter2!x"}),
        tool_result("call_1", {"phones": ["+86 138 0013 8000"], "ok": True, "count": 3}),
        {"type": "x_note", "id": "n1", "content": [{"deep": "card 4242 4242 4242 4242"}]},
    )
    draft = says("done", Role.ASSISTANT, parts=parts, metadata={"mail": "ann@example.com"}, extra={"n": 13800138000})

    await redacting.sessions.append(ANN, "s", AppendBatch(id=fresh("b"), messages=(draft,), create=NewSession()))

    message = (await redacting.sessions.messages(ANN, "s", Page(limit=1))).messages[0]
    assert message.parts[0]["arguments"] == {"to": "[REDACTED_EMAIL]", "password": "[REDACTED_SECRET]"}
    assert message.parts[0]["name"] == "send"
    assert message.parts[1]["output"] == {"phones": ["[REDACTED_PHONE]"], "ok": True, "count": 3}
    assert message.parts[2] == {"type": "x_note", "id": "n1", "content": [{"deep": "card [REDACTED_CC]"}]}
    assert message.metadata["mail"] == "[REDACTED_EMAIL]"
    assert message.extra == {"n": "[REDACTED_PHONE]"}


async def test_pictures_and_signatures_pass_unchanged(redacting: RedactingStore) -> None:
    picture = {"type": "image", "url": "data:image/png;base64," + "A4242424242424242" * 60, "blob": "Zm9v" * 200}

    await redacting.sessions.append(
        ANN, "s", AppendBatch(id=fresh("b"), messages=(says("", parts=(picture,)),), create=NewSession())
    )

    assert (await redacting.sessions.messages(ANN, "s", Page(limit=1))).messages[0].parts == (picture,)


async def test_a_head_is_looked_through_with_its_messages(redacting: RedactingStore) -> None:
    create = NewSession(title="call 13800138000", context={"mail": "ann@example.com"}, attributes={"n": 1})

    await begin(redacting, ANN, "s", "hello", create=create)
    session = await redacting.sessions.patch(
        ANN, "s", Changes(attributes={"mail": "bob@example.com"}, context={"mail": None})
    )

    assert session.title == "call [REDACTED_PHONE]"
    assert session.attributes == {"n": 1, "mail": "[REDACTED_EMAIL]"}
    assert session.context == {}


async def test_tenants_have_policies_of_their_own() -> None:
    own = PrivacyPolicy(message=Mode.REDACT, patterns=(CustomPattern(name="STAFF_NO", pattern="EMP-[0-9]{5}"),))
    _, store = redacting_store(acme=own)
    other = Scope(tenant="other", user="ann")

    await begin(store, ANN, "s", "ask EMP-12345 or ann@example.com")
    await begin(store, other, "s", "ask EMP-12345 or ann@example.com")

    assert await texts(store, ANN, "s") == ["ask [REDACTED_STAFF_NO] or [REDACTED_EMAIL]"]
    assert await texts(store, other, "s") == ["ask EMP-12345 or ann@example.com"]


@pytest.mark.parametrize(
    ("policy", "said", "stored"),
    [
        (
            replace(REDACTING, allow=("support@example.com", "*.example.org")),
            "support@example.com, a@mail.example.org, b@example.com",
            "support@example.com, a@mail.example.org, [REDACTED_EMAIL]",
        ),
        (HIDING, "password=abc123 and ann@example.com", "[REDACTED_SECRET] and [EMAIL_1]"),
    ],
    ids=["what is allowed stays", "no password or key is put into a vault"],
)
async def test_words_are_stored_by_the_policy(policy: PrivacyPolicy, said: str, stored: str) -> None:
    _, store = redacting_store(policy)

    await begin(store, ANN, "s", said)

    assert await texts(store, ANN, "s") == [stored]


# Pseudonyms.


async def test_one_value_has_one_mark_in_all_its_spellings_and_all_turns(hiding: RedactingStore) -> None:
    turn = await begin(hiding, ANN, "s", "ring +86 138-0013-8000 or 13800138000, mail ann@example.com")
    await hiding.sessions.finish_turn(turn, FinishTurn(reply=(answers("Noted: ANN@example.com, and bob@example.com"),)))

    assert await texts(hiding, ANN, "s") == [
        "ring [PHONE_1] or [PHONE_1], mail [EMAIL_1]",
        "Noted: [EMAIL_1], and [EMAIL_2]",
    ]


async def test_a_mark_that_somebody_typed_is_no_mark(hiding: RedactingStore) -> None:
    await talk(hiding, ANN, "s", "ann@example.com", "ok")

    turn = await begin(hiding, ANN, "s", "what is [EMAIL_1]?")

    assert turn.user_messages[0].text == "what is ［EMAIL_1］?"
    assert (await texts(hiding, ANN, "s"))[-1] == "what is ［EMAIL_1］?"


async def test_no_value_stands_in_the_store_in_the_clear(inner: MemoryStore, hiding: RedactingStore) -> None:
    await begin(hiding, ANN, "s", MAIL)

    entry = await inner.state.read_state(ACME, VAULT, "s")
    assert entry is not None
    assert "example" not in str(entry)


@pytest.mark.parametrize("way", ["delete", "erase", "evict"])
async def test_values_go_with_the_session(inner: MemoryStore, hiding: RedactingStore, way: str) -> None:
    await talk(hiding, ANN, "s", MAIL, "ok")
    assert await inner.state.read_state(ACME, VAULT, "s") is not None

    match way:
        case "delete":
            await hiding.sessions.delete(ANN, "s")
        case "erase":
            await hiding.upkeep.erase(ANN)
        case _:
            await hiding.upkeep.evict(ACME, 0)

    assert await inner.state.read_state(ACME, VAULT, "s") is None


async def test_a_fork_of_a_part_holds_the_values_of_that_part_alone(hiding: RedactingStore) -> None:
    await talk(hiding, ANN, "s", MAIL, "ok")
    await begin(hiding, ANN, "s", "and to bob@example.com")

    await hiding.sessions.fork(ANN, "s", ForkRequest(new_id="branch", at=2))

    assert await values(hiding, ANN, "branch") == {"[EMAIL_1]": "ann@example.com"}


async def test_a_fork_reads_its_marks_and_loses_nothing_with_the_original(hiding: RedactingStore) -> None:
    await talk(hiding, ANN, "s", MAIL, "ok")

    await hiding.sessions.fork(ANN, "s", ForkRequest(new_id="branch"))
    await hiding.sessions.delete(ANN, "s")
    await begin(hiding, ANN, "branch", "and bob@example.com, ann@example.com")

    assert await values(hiding, ANN, "branch") == {"[EMAIL_1]": "ann@example.com", "[EMAIL_2]": "bob@example.com"}
    assert (await texts(hiding, ANN, "branch"))[-1] == "and [EMAIL_2], [EMAIL_1]"


async def test_marks_of_one_session_mean_nothing_in_another(hiding: RedactingStore) -> None:
    await begin(hiding, ANN, "one", "ann@example.com")
    await begin(hiding, BOB, "two", "bob@example.com")

    assert await values(hiding, BOB, "two") == {"[EMAIL_1]": "bob@example.com"}


async def test_a_strangers_words_leave_no_trace_in_a_session_that_is_not_theirs(hiding: RedactingStore) -> None:
    await begin(hiding, ANN, "s", "ann@example.com")

    with pytest.raises(SessionNotFound):
        await begin(hiding, BOB, "s", "eve@example.com")

    assert await values(hiding, ANN, "s") == {"[EMAIL_1]": "ann@example.com"}


async def test_a_session_that_made_room_leaves_no_values_to_the_next_of_its_id(fake_clock: FakeClock) -> None:
    inner = MemoryStore(clock=fake_clock)
    store = RedactingStore(store=inner, redactor=redactor_over(inner, HIDING))
    keeping = Retention(idle=timedelta(hours=1))
    await begin(store, ANN, "s", "ann@example.com", create=NewSession(retention=keeping))
    fake_clock.advance(timedelta(hours=2))

    turn = await begin(store, ANN, "s", "bob@example.com")

    assert turn.expired
    assert await values(store, ANN, "s") == {"[EMAIL_1]": "bob@example.com"}


async def test_values_of_refused_words_open_for_nobody(inner: MemoryStore, hiding: RedactingStore) -> None:
    """Ann's message is refused because there is no such session; Bob then begins one with the id."""
    with pytest.raises(SessionNotFound):
        await begin(hiding, ANN, "s", "ann@example.com", create=None)
    assert await inner.state.read_state(ACME, VAULT, "s") is None

    await begin(hiding, BOB, "s", "hello [EMAIL_1]")

    assert await values(hiding, BOB, "s") == {}


@pytest.mark.parametrize("next_one", [False, True], ids=["gone", "made anew"])
async def test_a_turn_that_lost_its_session_leaves_no_value_behind(
    inner: MemoryStore, hiding: RedactingStore, next_one: bool
) -> None:
    """Nor does it touch the values of the next session of that id."""
    late = await begin(hiding, ANN, "s", "hello")
    await hiding.sessions.delete(ANN, "s")
    if next_one:
        await begin(hiding, ANN, "s", "bob@example.com")

    with pytest.raises((TurnLost, SessionNotFound)):
        await hiding.sessions.finish_turn(late, FinishTurn(reply=(answers("ann@example.com"),)))

    if next_one:
        assert await values(hiding, ANN, "s") == {"[EMAIL_1]": "bob@example.com"}
    else:
        assert await inner.state.read_state(ACME, VAULT, "s") is None


async def taken_up(store: RedactingStore, session_id: str, said: str, answered: str) -> int:
    """A turn with its trace; returns the number of its first message."""
    turn = await begin(store, ANN, session_id, said)
    trace = replace(traced(session_id, said, answer=answered), number=turn.number)
    await store.sessions.finish_turn(turn, FinishTurn(reply=(answers(answered),), trace=trace))
    return turn.user_messages[0].seq


async def test_words_that_are_taken_back_take_their_values_along() -> None:
    """An edit: values without a placeholder in any stored text are deleted, others stay."""
    _, store = redacting_store(replace(HIDING, trace=Mode.PSEUDONYM, title=Mode.PSEUDONYM))
    await taken_up(store, "s", "write to ann@example.com", "done, bob@example.org")
    edited = await taken_up(store, "s", "card 4242 4242 4242 4242, eve@example.org", "ann@example.com, 10.0.0.8?")
    await store.sessions.patch(ANN, "s", Changes(title="for eve@example.org"))

    await store.sessions.truncate(ANN, "s", Truncation(after=edited - 1))

    assert await values(store, ANN, "s") == {
        "[EMAIL_1]": "ann@example.com",
        "[EMAIL_2]": "bob@example.org",
        "[EMAIL_3]": "eve@example.org",
    }
    await taken_up(store, "s", "card 4242 4242 4242 4242", "yes")
    assert (await texts(store, ANN, "s"))[-2:] == ["card [CC_2]", "yes"], "a number is not given twice"


async def test_a_value_that_only_a_trace_showed_goes_with_its_turn() -> None:
    _, store = redacting_store(PrivacyPolicy(trace=Mode.PSEUDONYM))
    await taken_up(store, "s", "write to ann@example.com", "done")
    edited = await taken_up(store, "s", "write to bob@example.org", "done")

    await store.sessions.truncate(ANN, "s", Truncation(after=edited - 1))

    assert await values(store, ANN, "s") == {"[EMAIL_1]": "ann@example.com"}


async def test_words_go_with_their_values_also_when_the_policy_has_changed_since(
    inner: MemoryStore, hiding: RedactingStore
) -> None:
    for session in ("cut", "reset"):
        await taken_up(hiding, session, "write to ann@example.com", "done")
    today = RedactingStore(store=inner, redactor=redactor_over(inner))

    await today.sessions.truncate(ANN, "cut", Truncation(after=0))
    await today.sessions.reset(ANN, "reset")

    assert await values(hiding, ANN, "cut") == await values(hiding, ANN, "reset") == {}


async def test_taking_words_back_from_a_session_that_is_not_there_says_so(hiding: RedactingStore) -> None:
    with pytest.raises(SessionNotFound):
        await hiding.sessions.truncate(ANN, "nowhere", Truncation(after=0))


async def test_marks_in_a_head_outlive_a_reset_and_numbers_are_not_given_twice(hiding: RedactingStore) -> None:
    await begin(hiding, ANN, "s", "bob@example.com", create=NewSession(attributes={"to": "ann@example.com"}))
    marked = (await hiding.sessions.get(ANN, "s")).attributes["to"]

    await hiding.sessions.reset(ANN, "s")
    await begin(hiding, ANN, "s", "eve@example.com")

    opened = await values(hiding, ANN, "s")
    assert opened[marked] == "ann@example.com"
    assert sorted(opened.values()) == ["ann@example.com", "eve@example.com"]
    assert (await texts(hiding, ANN, "s"))[-1] == "[EMAIL_3]"


async def test_a_head_that_is_written_back_keeps_its_marks(hiding: RedactingStore) -> None:
    await begin(hiding, ANN, "s", "hi", create=NewSession(context={"mail": "ann@example.com"}))
    context = (await hiding.sessions.get(ANN, "s")).context

    session = await hiding.sessions.patch(ANN, "s", Changes(context=context))

    assert session.context == {"mail": "[EMAIL_1]"}


async def test_values_are_sealed_again_under_a_new_key(inner: MemoryStore, hiding: RedactingStore) -> None:
    """Afterwards the older key opens nothing that is needed; what does not open is counted and left."""
    for name in ("s", "t", "damaged"):
        await talk(hiding, ANN, name, MAIL, "ok")
    shown = await values(hiding, ANN, "s")
    damaged = await inner.state.read_state(ACME, VAULT, "damaged")
    assert damaged is not None
    held = {mark: {**one, "sealed": one["sealed"][:-6] + "AAAAAA"} for mark, one in damaged.value["held"].items()}
    await inner.state.write_state(ACME, VAULT, "damaged", {**damaged.value, "held": held})
    vault, ring = hiding.redactor.vault, load_key_ring(key=MASTER_KEY)
    assert vault is not None
    assert ring is not None
    assert await vault.reseal(ACME) == (0, 0)
    ciphers = TenantCiphers(store=inner.state, ring=ring)
    await ciphers.renew(ACME)
    sealed = (await ciphers.cipher_for_sealing(ACME)).seal(b"", ("x",))

    assert await vault.reseal(ACME) == (2, 1)
    assert await vault.reseal(ACME) == (0, 1)

    entry = await inner.state.read_state(ACME, VAULT, "s")
    assert entry is not None
    assert {data_key_id(one["sealed"]) for one in entry.value["held"].values()} == {data_key_id(sealed)}
    assert await values(hiding, ANN, "s") == shown
    await talk(hiding, ANN, "s", MAIL, "ok")
    assert await values(hiding, ANN, "s") == shown


async def test_a_damaged_vault_keeps_nobody_from_being_erased(inner: MemoryStore, hiding: RedactingStore) -> None:
    await begin(hiding, ANN, "s", "ann@example.com")
    await inner.state.write_state(ACME, VAULT, "s", "scribbled over")

    erased = await hiding.upkeep.erase(ANN)

    assert (len(erased.removed_sessions), erased.vault_values) == (1, 0)
    assert await inner.state.read_state(ACME, VAULT, "s") is None


async def test_values_whose_session_has_gone_are_found(inner: MemoryStore, hiding: RedactingStore) -> None:
    for name in ("s", "other"):
        await begin(hiding, ANN, name, "ann@example.com")
    await inner.sessions.delete(ANN, "s")
    vault = hiding.redactor.vault
    assert vault is not None

    assert await vault.forget_orphans(ACME) == 1

    assert await inner.state.read_state(ACME, VAULT, "s") is None
    assert await values(hiding, ANN, "other") == {"[EMAIL_1]": "ann@example.com"}


@pytest.mark.parametrize(
    "text",
    ["data:text/csv,name,ann@example.com", "data:text/plain;base64,ann@example.com", "A1b2" * 200 + " ann@example.com"],
)
async def test_only_what_nobody_can_read_passes_unread(redacting: RedactingStore, text: str) -> None:
    draft = says(text, metadata={"file": text})

    await redacting.sessions.append(ANN, "s", AppendBatch(id=fresh("b"), messages=(draft,), create=NewSession()))

    message = (await redacting.sessions.messages(ANN, "s", Page(limit=1))).messages[0]
    assert "ann@" not in message.text
    assert "ann@" not in message.metadata["file"]


async def test_words_are_always_read_however_they_look(redacting: RedactingStore) -> None:
    draft = says("x", parts=({"type": "text", "text": "4242424242424242" + "a" * 600},))

    await redacting.sessions.append(
        ANN, "s", AppendBatch(id=fresh("b"), messages=(draft, says("ghp_" + "aB3d" * 9)), create=NewSession())
    )

    assert (await texts(redacting, ANN, "s"))[-1] == "[REDACTED_API_KEY]"


@pytest.mark.parametrize(
    ("name", "one", "other", "same"),
    [
        ("CASE", "12-3456/A", "123-456/A", False),
        ("ADDRESS", "12 3rd Street", "1 23rd Street", False),
        ("CC", "4242 4242 4242 4242", "4242-4242-4242-4242", True),
        ("EMAIL", "Ann@Example.com", "ann@example.com", True),
        ("EMAIL", "ann@example。com", "ann@example.com", True),
        ("PHONE", "+1 202-555-0143", "(202) 555-0143", True),
        ("PHONE", "0086 138 0013 8000", "13800138000", True),
        ("SECRET", "Hunter2", "hunter2", False),
    ],
)
def test_spellings_of_one_value_are_alike_and_other_values_are_not(name: str, one: str, other: str, same: bool) -> None:
    assert (normalize_spelling(name, one) == normalize_spelling(name, other)) is same


class _Unwilling(FlatMemoryStore):
    """Accepts messages; the first rewrite fails."""

    failures = 1

    async def rewrite(self, scope: Scope, session_id: str, request: Rewrite) -> Session:
        if self.failures:
            self.failures -= 1
            raise Unavailable("session store")
        return await super().rewrite(scope, session_id, request)


async def test_a_turn_whose_marks_could_not_be_stored_gives_its_lease_back() -> None:
    """The session is not busy for two minutes because of it, and the same key continues the turn."""
    backend = _Unwilling()
    store = RedactingStore(store=backend, redactor=redactor_over(backend, HIDING))
    key = IdempotencyKey(key="k", fingerprint="body")
    with pytest.raises(Unavailable):
        await begin(store, ANN, "s", MAIL, idempotency_key=key)

    turn = await begin(store, ANN, "s", MAIL, idempotency_key=key)

    await store.sessions.finish_turn(turn, FinishTurn(reply=(answers("done"),)))
    assert len(await texts(store, ANN, "s")) == 2


@pytest.mark.parametrize("mode", [Mode.REDACT, Mode.PSEUDONYM, Mode.BLOCK])
async def test_too_dense_a_text_is_refused_and_of_an_answer_the_rest_withheld(
    mode: Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finder, "MOST_JUDGED", 900)
    dense = " ".join(f"user{number}@example.com" for number in range(2000))
    inner, store = redacting_store(PrivacyPolicy(message=mode, memory=mode if mode is Mode.BLOCK else Mode.REDACT))

    with pytest.raises(TooManyPrivateValues, match="smaller parts"):
        await begin(store, ANN, "dense", dense)
    with pytest.raises(TooManyPrivateValues):
        await store.sessions.append(ANN, "dense", AppendBatch(id=fresh("batch"), messages=(says(dense),)))
    with pytest.raises(TooManyPrivateValues):
        await store.state.write_state(ANN, "notes", "contacts", dense)
    with pytest.raises(SessionNotFound):
        await inner.sessions.get(ANN, "dense")

    await talk(store, ANN, "calm", "hello", dense)

    _, answer = (await inner.sessions.messages(ANN, "calm", Page())).messages
    assert answer.text.endswith("[WITHHELD]")
    assert "@" not in answer.text
    assert answer.metadata["redacted"]["WITHHELD"] == 1
