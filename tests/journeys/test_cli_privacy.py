"""Private data at the terminal: scan, fix, erase, verify, reveal, and the keys behind it."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import tenuto
from tenuto.model import Scope
from tenuto.privacy.compliance.service import PrivacyService
from tests.journeys.cli_runs import (
    KEEP_SETTINGS,
    MAIL,
    PRIVATE_TEXT,
    PSEUDONYM_SETTINGS,
    chat_session_id,
    key_ring_settings,
    run_command,
    run_json,
)
from tests.journeys.terminal import ENTER, Screen, Shell
from tests.samples import CARD, shows_card

pytestmark = pytest.mark.usefixtures("own_environment")


def shown(session: str) -> str:
    """A session and its traces, as they are stored."""
    return run_command("sessions", "show", session, "--json").stdout + run_command("traces", "list", "--json").stdout


# Scanning


def test_a_scan_counts_by_sink_and_type_and_a_fix_takes_out_what_may_not_stay() -> None:
    session = chat_session_id(env=KEEP_SETTINGS)

    first = run_command("privacy", "scan")
    output = run_json("privacy", "scan", ends=1)
    fixed = run_json("privacy", "scan", "--fix")
    again = run_json("privacy", "scan")

    assert first.exit_code == 1
    assert [line.split()[:3] for line in first.stdout.splitlines() if line.startswith("trace")] == [
        ["trace", "CC", "1"],
        ["trace", "EMAIL", "1"],
    ]
    assert "against the policy" in first.stdout
    assert MAIL not in first.output
    assert output["matches"]["message"] == {"CC": 1, "EMAIL": 2}, "the message, and the title made of it"
    assert "message" in output["allowed_sinks"]
    assert output["violations"] == 3, "two values in the trace, one in the title"
    assert fixed["fixed"] >= 1
    assert again["violations"] == 0
    assert MAIL in shown(session), "the live message stays by default"
    assert MAIL not in run_command("traces", "list", "--json").stdout
    assert [note["act"] for note in run_json("privacy", "audit")["entries"]] == ["fixed"]


def test_a_scan_tells_what_is_remembered_and_a_fix_takes_it_out() -> None:
    """Also where no session is left; the shop's orders are neither counted nor touched."""

    async def remember() -> None:
        async with tenuto.open(privacy_memory="keep") as app:
            for tenant in ("local", "acme"):
                ann = app.scope(tenant=tenant, user="ann")
                await app.store.state.write_state(ann, "facts", "mail", {"said": [f"write to {MAIL}"]})
                await app.store.state.write_state(ann, "prefs", "tone", "warm")
                await app.store.state.write_state(ann, "goods", "orders", {"orders": [{"id": "13812345678"}]})

    asyncio.run(remember())

    first = run_command("privacy", "scan")
    output = run_json("privacy", "scan", "--all", ends=1)
    fixed = run_json("privacy", "scan", "--fix")
    again = run_command("privacy", "scan", "--all")
    note = run_json("privacy", "audit")["entries"][-1]

    assert first.exit_code == 1
    assert ["memory", "EMAIL", "1", "against", "the", "policy"] in [line.split() for line in first.stdout.splitlines()]
    assert "0 sessions, 2 memories, 2 texts scanned." in first.stdout
    assert (output["sessions"], output["memories"], output["violations"]) == (0, 4, 2)
    assert output["matches"] == {"memory": {"EMAIL": 2}}
    assert [(one["tenant"], one["memories"]) for one in output["sites"]] == [("acme", 2), ("local", 2)]
    assert (fixed["memories"], fixed["fixed"]) == (2, 1)
    assert (note["act"], note["about"]) == ("fixed", {"sessions": 0, "memories": 2, "fixed": 1})
    assert ["acme", "0", "2", "1", "1"] in [line.split() for line in again.stdout.splitlines()]
    assert ["local", "0", "2", "0", "0"] in [line.split() for line in again.stdout.splitlines()]


@pytest.mark.parametrize("site", [(), ("--all",)], ids=["one", "all"])
def test_a_scan_counts_beforehand_only_at_a_terminal(site: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no bar to fill where the answer is JSON, or output is no terminal."""
    chat_session_id("Nothing private.")
    extent, asked_for = PrivacyService.extent, []

    async def counted(office: PrivacyService, scope: Scope) -> int:
        asked_for.append(scope)
        return await extent(office, scope)

    monkeypatch.setattr(PrivacyService, "extent", counted)

    run_json("privacy", "scan", *site)
    run_command("privacy", "scan", *site)
    before = asked_for.copy()
    monkeypatch.setattr("tenuto.cli.privacy.is_watched", lambda quiet: not quiet)
    run_json("privacy", "scan", *site)
    run_command("privacy", "scan", *site)

    assert before == []
    assert len(asked_for) == 1


def test_a_scan_looks_at_its_own_tenant_and_site_only() -> None:
    chat_session_id(env=KEEP_SETTINGS)

    assert run_json("privacy", "scan", "--tenant", "acme")["sessions"] == 0
    assert run_json("privacy", "scan", "--site", "museum")["sessions"] == 0


def test_a_scan_of_everything_tells_each_site_and_the_total() -> None:
    """Every tenant is judged by its own policy, and only what stands against it ends with 1."""
    Path("policy.toml").write_text('[tenants.acme]\nmessage = "redact"\n', encoding="utf-8")
    strict = {"TENUTO_PRIVACY_FILE": "policy.toml"}
    chat_session_id()
    for where in (("--tenant", "acme"), ("--tenant", "acme", "--site", "museum")):
        run_json("chat", PRIVATE_TEXT, "--user", "ann", *where)

    allowed = run_json("privacy", "scan", "--all")
    against = run_json("privacy", "scan", "--all", env=strict, ends=1)
    table = run_command("privacy", "scan", "--all", env=strict)
    fixed = run_json("privacy", "scan", "--all", "--fix", env=strict)

    assert (allowed["sessions"], allowed["violations"]) == (3, 0)
    assert [(one["tenant"], one["site"], one["violations"]) for one in against["sites"]] == [
        ("acme", "", against["violations"] // 2),
        ("acme", "museum", against["violations"] // 2),
        ("local", "", 0),
    ]
    assert against["matches"] == allowed["matches"]
    lines = [line.split() for line in table.stdout.splitlines()]
    assert ["local", "1", "1", str(allowed["sites"][2]["matches"]["message"]["EMAIL"] * 2), "0"] in lines
    assert ["TENANT", "SITE", "SESSIONS", "MEMORIES", "MATCHES", "VIOLATIONS"] in lines
    assert "3 sites, 3 sessions" in table.stdout
    assert (table.exit_code, MAIL in table.output) == (1, False)
    assert fixed["fixed"] >= 2
    assert run_json("privacy", "scan", "--all", env=strict)["violations"] == 0
    for site in ("", "museum"):
        noted = run_json("privacy", "audit", "--tenant", "acme", "--site", site)["entries"]
        assert [note["act"] for note in noted] == ["fixed"]


def test_a_fix_of_everything_clears_the_bytes_of_every_site_and_says_so(tmp_path: Path) -> None:
    """What one site took out goes from the file as surely as what the first one did."""
    for tenant in ("acme", "bravo"):
        run_json("chat", PRIVATE_TEXT, "--user", "ann", "--tenant", tenant, env=KEEP_SETTINGS)
    strict = {"TENUTO_PRIVACY_MESSAGE": "redact"}
    before = _in_files(tmp_path)

    fixed = run_json("privacy", "scan", "--all", "--fix", env=strict)
    after = _in_files(tmp_path)
    again = run_command("privacy", "scan", "--all", "--fix", env=strict)

    assert (before, after) == (True, False)
    assert (fixed["compaction"], fixed["remaining_reason"], len(fixed["sites"])) == ("done", "", 2)
    assert all(site["fixed"] for site in fixed["sites"])
    assert again.stdout.splitlines()[-1] == "Deleted bytes, in the whole store: nothing to clear."


def _in_files(folder: Path) -> bool:
    return any(MAIL.encode() in file.read_bytes() for file in folder.rglob("*") if file.is_file())


def test_a_fix_of_one_site_tells_what_became_of_the_bytes(tmp_path: Path) -> None:
    chat_session_id(env=KEEP_SETTINGS)

    looked = run_json("privacy", "scan", ends=1)
    fixed = run_command("privacy", "scan", "--fix", env={"TENUTO_PRIVACY_MESSAGE": "redact"})

    assert looked["compaction"] is None
    assert fixed.stdout.splitlines()[-1] == "Deleted bytes, in the whole store: cleared."
    assert not _in_files(tmp_path)


def test_a_tenant_whose_key_is_missing_does_not_keep_the_others_from_a_fix(tmp_path: Path) -> None:
    both, one = key_ring_settings(tmp_path, own="bravo")
    sealed = {**KEEP_SETTINGS, "TENUTO_ENCRYPTION": "true"}
    for tenant in ("acme", "bravo", "charlie"):
        run_json("chat", PRIVATE_TEXT, "--user", "ann", "--tenant", tenant, env={**sealed, **both})
    lacking = {**sealed, **one, "TENUTO_PRIVACY_MESSAGE": "redact"}

    fixed = run_json("privacy", "scan", "--all", "--fix", env=lacking, ends=1)
    result = run_command("privacy", "scan", "--all", env=lacking)

    assert [(site["tenant"], bool(site["fixed"])) for site in fixed["sites"]] == [("acme", True), ("charlie", True)]
    assert [(site["tenant"], site["code"]) for site in fixed["locked_sites"]] == [("bravo", "decryption_failed")]
    assert fixed["compaction"] == "done"
    assert result.stderr.startswith("decryption_failed: tenant bravo was not scanned: ")
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)


def test_a_scan_of_everything_takes_no_tenant() -> None:
    for where in (("--tenant", "acme"), ("--site", "museum")):
        result = run_command("privacy", "scan", "--all", *where)
        assert result.exit_code == 2
        assert "--tenant" in result.output


def test_a_scan_of_everything_in_an_empty_store_finds_nothing() -> None:
    empty = run_command("privacy", "scan", "--all", "--store", "memory://")

    assert empty.exit_code == 0
    assert empty.stdout.splitlines() == [
        "0 sites, 0 sessions, 0 memories, 0 texts scanned.",
        "Nothing violates the policy.",
    ]


# Erasing


@pytest.mark.requirement("S3")
def test_a_person_is_erased_from_the_file_and_the_receipt_can_be_verified(tmp_path: Path, shell: Shell) -> None:
    """The real process; afterwards no byte of the words is left in the database or beside it."""
    chat_session_id()
    chat_session_id("Hello there!", user="bob")

    nobody_asked = shell.run("privacy", "erase", "--user", "ann")
    erased = shell.run("privacy", "erase", "--user", "ann", "--yes", "--out", "receipt.json")
    left = b"".join(path.read_bytes() for path in tmp_path.glob("data/tenuto.db*"))

    assert nobody_asked.returncode == 2
    assert "--yes" in nobody_asked.stderr
    assert (erased.returncode, erased.stderr) == (0, "")
    assert "1 sessions" in erased.stdout
    assert MAIL.encode() not in left
    assert CARD.encode() not in left
    assert run_json("privacy", "verify", "receipt.json")["valid"] is True
    assert run_json("stats")["sessions"] == 1
    [note] = run_json("privacy", "audit")["entries"]
    assert (note["act"], note["by"].partition(":")[0]) == ("erased", "cli")


def test_somebody_at_the_terminal_is_asked_before_anyone_is_erased(tmp_path: Path) -> None:
    chat_session_id()
    for answer, code, left in (("n", 1, 1), ("y", 0, 0)):
        with Screen(tmp_path, "privacy", "erase", "--user", "ann", env=os.environ) as screen:
            screen.see("Erase everything of user ann in all sites of tenant local permanently? [y/N]: ")
            screen.press(answer + ENTER)
            assert screen.end() == code
        assert run_json("stats")["sessions"] == left


def test_a_receipt_that_was_changed_does_not_hold(tmp_path: Path) -> None:
    chat_session_id()
    receipt = run_json("privacy", "erase", "--user", "ann", "--yes")
    changes: list[dict[str, Any]] = [
        {},
        {"counts": {**receipt["counts"], "messages": 99}},
        {"user_digest": "0" * 64},
        {"signature": "AAAA" + receipt["signature"][4:]},
        {"public_key": "AAAA" + receipt["public_key"][4:]},
        {"signature": "no signature"},
        {"remark": "and everything else"},
    ]

    results = []
    for number, change in enumerate(changes):
        path = tmp_path / f"{number}.json"
        path.write_text(json.dumps({**receipt, **change}))
        results.append(run_command("privacy", "verify", str(path)).exit_code)

    assert results == [0, 1, 1, 1, 1, 1, 1]


def test_a_receipt_of_another_installation_does_not_hold_here(tmp_path: Path) -> None:
    chat_session_id()
    receipt = run_json("privacy", "erase", "--user", "ann", "--yes")
    (tmp_path / "receipt.json").write_text(json.dumps(receipt))
    other = ("--store", "sqlite:///other.db")
    run_command("chat", "Hello!", *other)

    elsewhere = run_command("privacy", "verify", "receipt.json", *other)
    by_key = run_json("privacy", "verify", "receipt.json", "--key", receipt["public_key"], *other)
    about_bob = run_json("privacy", "verify", "receipt.json", "--user", "bob", ends=1)

    assert elsewhere.exit_code == 1
    assert "not signed by this installation" in elsewhere.stderr
    assert by_key["valid"] is True
    assert about_bob["why"] == "it is about another user"
    assert run_json("privacy", "verify", "receipt.json", "--user", "ann")["valid"] is True


def test_a_receipt_that_is_not_there_is_told_by_its_name() -> None:
    chat_session_id()
    missing = run_command("privacy", "verify", "nowhere.json")

    assert (missing.exit_code, missing.stderr) == (1, "invalid: cannot read nowhere.json: No such file or directory\n")


def test_a_receipt_that_cannot_be_written_stops_the_erasing() -> None:
    chat_session_id()

    result = run_command("privacy", "erase", "--user", "ann", "--yes", "--out", "no/such/folder/receipt.json")

    assert result.exit_code == 1
    assert run_json("stats")["sessions"] == 1


# Pseudonyms and keys


def test_an_operator_looks_behind_a_mark_and_is_noted() -> None:
    run_command("privacy", "new-key", "key.toml")
    session = chat_session_id(env=PSEUDONYM_SETTINGS)

    opened = run_json("privacy", "reveal", session, "EMAIL_1", "[CC_1]", env=PSEUDONYM_SETTINGS)
    part = run_json("privacy", "reveal", session, "EMAIL_1", "PHONE_7", env=PSEUDONYM_SETTINGS, ends=1)
    unknown = run_command("privacy", "reveal", session, "EMAIL_7", env=PSEUDONYM_SETTINGS)
    keyless = run_command("privacy", "reveal", session, "EMAIL_1")
    [first, _] = run_json("privacy", "audit")["entries"]

    assert MAIL not in shown(session)
    assert opened["values"] == {"[EMAIL_1]": MAIL, "[CC_1]": CARD}
    assert part == {"values": {"[EMAIL_1]": MAIL}, "unknown": ["[PHONE_7]"]}
    assert (unknown.exit_code, unknown.stdout) == (1, "")
    assert unknown.stderr.startswith("placeholder_not_found: the session has no such placeholder")
    assert (keyless.exit_code, "privacy_key" in keyless.stderr) == (1, True)
    assert (first["act"], first["by"], first["about"]["session"]) == ("revealed", "cli:otto", session)
    assert "redacted: 1 CC, 1 EMAIL" in run_command("sessions", "show", session).stdout


def test_what_is_stored_is_encrypted_renewed_and_made_plain_again(tmp_path: Path) -> None:
    run_command("privacy", "new-key", "key.toml")
    plain, words = {"TENUTO_PRIVACY_KEY_FILE": "key.toml"}, "The quokka smiles."
    sealed = {**plain, "TENUTO_ENCRYPTION": "true"}
    session = chat_session_id(words)
    before = words.encode() in _store()

    encrypted = run_command("privacy", "rotate", "--reseal", env=sealed)
    lies_there = _store()
    renewed = run_json("privacy", "rotate", "--renew", "--reseal", env=sealed)["resealed"]
    again = run_command("privacy", "rotate", "--reseal", env=sealed).stdout
    one_tenant = run_command("privacy", "rotate", "--reseal", "--tenant", "local", env=sealed)
    decrypted = run_json("privacy", "rotate", "--reseal", env=plain)["resealed"]

    assert before
    assert encrypted.exit_code == 0, encrypted.stderr
    assert words.encode() not in lies_there
    assert (renewed["written"] > 0, decrypted["written"] > 0) == (True, True)
    assert re.search(r"^0 of \d+ records rewritten: all text is encrypted with the keys in use\.$", again, re.MULTILINE)
    assert (one_tenant.exit_code, "covers every tenant" in one_tenant.stderr) == (2, True)
    assert words in run_command("sessions", "show", session).stdout


def _store() -> bytes:
    """The file of the store and its log."""
    return b"".join(file.read_bytes() for file in Path().rglob("tenuto.db*"))


def test_after_a_rotation_the_old_master_key_is_no_longer_needed(tmp_path: Path) -> None:
    run_command("privacy", "new-key", "key.toml")
    session = chat_session_id(env=PSEUDONYM_SETTINGS)
    file = tmp_path / "key.toml"
    old = file.read_text()
    name, secret = old.rpartition("[keys]")[2].strip().split(" = ")
    file.write_text(f'current = "next"\n[keys]\n{name} = {secret}\nnext = "{"ab" * 32}"\n')

    rotated = run_json("privacy", "rotate", "--renew", env=PSEUDONYM_SETTINGS)
    file.write_text(f'current = "next"\n[keys]\nnext = "{"ab" * 32}"\n')
    opened = run_json("privacy", "reveal", session, "EMAIL_1", env=PSEUDONYM_SETTINGS)
    file.write_text(old)
    lost = run_command("privacy", "rotate", env=PSEUDONYM_SETTINGS)

    assert rotated["wrapped"]["local"] >= 1
    assert rotated["renewed"] == ["local"]
    assert opened["values"] == {"[EMAIL_1]": MAIL}
    assert lost.exit_code == 1
    assert "decryption_failed: tenant local: the encrypted record needs a master key" in lost.stderr


# Exports


@pytest.mark.parametrize("written", ["json", "jsonl", "markdown"])
def test_an_export_to_the_terminal_or_a_file_holds_nothing_private(written: str, tmp_path: Path) -> None:
    session = chat_session_id()

    printed = run_command("sessions", "export", session, "--format", written).stdout
    run_command("sessions", "export", session, "--format", written, "-o", "out")
    stdout = run_command(
        "sessions", "export", session, "--format", written, env={"TENUTO_PRIVACY_EXPORT": "keep"}
    ).stdout

    assert MAIL not in printed + (tmp_path / "out").read_text()
    assert not shows_card(printed)
    assert MAIL in stdout


def test_an_export_of_everything_goes_on_past_a_session_that_does_not_open(tmp_path: Path) -> None:
    """It is told by its id, and the rest is there; such an export says that it is not whole."""
    run_command("privacy", "new-key", "key.toml")
    sealed = {"TENUTO_ENCRYPTION": "true", "TENUTO_PRIVACY_KEY_FILE": "key.toml"}
    first, odd, last = chat_session_id(env=sealed), "../a b/%", chat_session_id(env=sealed, user="bob")
    run_json("sessions", "fork", last, "--new-id", odd, env=sealed)
    _mix_up(tmp_path / "data" / "tenuto.db", last, first)

    result = run_command("sessions", "export", "--all", "-o", "out", env=sealed)
    exported = run_json("sessions", "export", "--all", "-o", "lines", "--format", "jsonl", env=sealed, ends=1)
    hers = run_json("sessions", "export", "--all", "-o", "hers", "--user", "bob", env=sealed)

    assert result.exit_code == 1
    assert result.stdout == "2 sessions written to out.\n"
    assert result.stderr.startswith(f"decryption_failed: session {first}: the encrypted record ")
    assert MAIL not in result.output
    files = {path.name for path in (tmp_path / "out").iterdir()}
    assert files == {f"{last}.json", "%2E.%2Fa%20b%2F%25.json"}
    assert "[REDACTED_EMAIL]" in (tmp_path / "out" / f"{last}.json").read_text()
    assert {one["id"] for one in exported["exported"]} == {last, odd}
    assert [one["id"] for one in exported["failed"]] == [first]
    assert {one["id"] for one in hers["exported"]} == {last, odd}
    assert run_command("sessions", "import", f"out/{last}.json", env=sealed).exit_code == 0


def _mix_up(file: Path, source: str, target: str) -> None:
    """An attacker who can write to the file puts a message of one session into another."""
    with closing(sqlite3.connect(file)) as db, db:
        place = "number = 1 AND part = 'm' AND record = (SELECT id FROM record WHERE name = ?)"
        moved = f"UPDATE entry SET body = (SELECT body FROM entry WHERE {place}) WHERE {place}"
        assert db.execute(moved, (source, target)).rowcount == 1


def test_an_export_takes_one_id_or_everything() -> None:
    session = chat_session_id()
    for wrong in ((), ("--all",), ("--all", "-o", "-"), (session, "--all", "-o", "out")):
        assert run_command("sessions", "export", *wrong).exit_code == 2


# Blocking


def test_nothing_of_a_blocked_question_is_stored(tmp_path: Path) -> None:
    asyncio.run(_made())

    result = run_command("chat", PRIVATE_TEXT, env={"TENUTO_PRIVACY_MESSAGE": "block"})

    assert result.exit_code == 1
    assert result.stderr.startswith("private_data: ")
    with sqlite3.connect(tmp_path / "data" / "tenuto.db") as db:
        assert db.execute("SELECT count(*) FROM entry").fetchone() == (0,)
    db.close()


async def _made() -> None:
    async with tenuto.open():
        pass
