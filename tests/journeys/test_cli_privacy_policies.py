"""What holds for private data, as the terminal shows and tries it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.journeys.cli_runs import MAIL, PRIVATE_TEXT, key_ring_settings, run_command, run_json

pytestmark = pytest.mark.usefixtures("own_environment")


def test_the_policy_of_a_tenant_is_shown_and_tried_out(tmp_path: Path) -> None:
    (tmp_path / "privacy.toml").write_text(
        '[tenants.acme]\nmessage = "block"\nallow = ["*.example.com", "@example.com"]\n'
        '[[tenants.acme.patterns]]\nname = "CASE"\npattern = "CASE-[0-9]{6}"\n'
    )
    env = {"TENUTO_PRIVACY_FILE": "privacy.toml"}

    policy = run_json("privacy", "policy", "--tenant", "acme", env=env)
    table = run_command("privacy", "policy", env=env).stdout
    acme = run_json("privacy", "test", f"{MAIL} in CASE-123456", "--tenant", "acme", env=env)
    piped = run_command("privacy", "test", "-", env=env, words=f"{MAIL} or {MAIL.upper()}").stdout

    assert (policy["modes"]["message"], policy["patterns"], policy["tenants"]) == ("block", ["CASE"], ["acme"])
    assert table.splitlines()[1].split()[:2] == ["message", "keep"]
    assert acme["redact"] == f"{MAIL} in [REDACTED_CASE]"
    assert "[EMAIL_1] or [EMAIL_1]" in piped
    assert "[REDACTED_EMAIL] or [REDACTED_EMAIL]" in piped
    assert run_command("privacy", "test", "nothing here").stdout == "No private data found.\n"


def test_a_policy_of_pseudonyms_without_a_key_is_shown_and_told_to_need_one(tmp_path: Path) -> None:
    """As the server says it, which would not start; with a key there is nothing to say."""
    (tmp_path / "privacy.toml").write_text('[tenants.acme]\nmessage = "pseudonym"\n')
    env = {"TENUTO_PRIVACY_FILE": "privacy.toml"}
    run_command("privacy", "new-key", "key.toml")
    sentence = "invalid_setting: privacy_key: is needed for pseudonyms: set it, or privacy_key_file\n"

    result = run_command("privacy", "policy", "--store", "sqlite:///elsewhere.db", env=env)
    told = run_command("privacy", "policy", "--json", env=env)
    start = run_command("stats", "--store", "memory://", env=env)
    keyed = run_command("privacy", "policy", env={**env, "TENUTO_PRIVACY_KEY_FILE": "key.toml"})

    assert [(one.exit_code, one.stderr) for one in (result, told, start)] == [(1, sentence)] * 3
    assert "key                none" in result.stdout
    assert json.loads(told.stdout)["key"] is False
    assert (keyed.exit_code, keyed.stderr) == (0, "")


def test_a_policy_whose_key_cannot_be_used_is_shown_and_told_in_a_sentence(tmp_path: Path) -> None:
    nowhere = run_command("privacy", "policy", env={"TENUTO_PRIVACY_KEY_FILE": "nowhere.toml"})
    (tmp_path / "keyless.toml").write_text(
        f'current = "m"\n[keys]\nm = "{"11" * 32}"\n[tenants.acme]\ncurrent = "t"\nkeys = {{}}'
    )
    (tmp_path / "keyless.toml").chmod(0o600)
    keyless = run_command("privacy", "policy", "--tenant", "acme", env={"TENUTO_PRIVACY_KEY_FILE": "keyless.toml"})

    assert [nowhere.exit_code, keyless.exit_code] == [1, 1]
    assert nowhere.stdout.startswith("SINK")
    assert nowhere.stderr == "invalid_setting: privacy_key_file: there is no such file\n"
    assert keyless.stderr == (
        "invalid_setting: privacy_key_file: [tenants.acme] names 't' as current, but has no such key\n"
    )


def test_a_tenants_own_key_that_is_missing_is_told_by_policy_and_doctor(tmp_path: Path) -> None:
    both, one = key_ring_settings(tmp_path, own="acme")
    marked = {"TENUTO_PRIVACY_MESSAGE": "pseudonym"}
    for tenant in ("acme", "bravo"):
        run_json("chat", PRIVATE_TEXT, "--user", "ann", "--tenant", tenant, env={**marked, **both})
    commands = [("privacy", "policy", "--tenant", "acme"), ("privacy", "policy", "--tenant", "bravo"), ("doctor",)]

    whole = [run_command(*command, env={**marked, **both}) for command in commands]
    lacking = [run_command(*command, env={**marked, **one}) for command in commands]

    assert [one.exit_code for one in whole] == [0, 0, 0]
    assert [one.exit_code for one in lacking] == [1, 0, 1]
    sentence = "its keys need a master key that the key ring does not have, with the fingerprint "
    told = lacking[0].stderr
    assert told.startswith(f"invalid_setting: privacy_key_file: cannot decrypt the data of tenant acme: {sentence}")
    assert told.count("\n") == 1
    assert "usable for 2 tenants" in whole[2].stdout
    assert f"tenant acme: {sentence}" in lacking[2].stdout
    assert "usable for 1 tenant" in lacking[2].stdout


def test_commands_about_policies_take_a_store_like_all_others() -> None:
    for command in (("policy",), ("test", "Hello.")):
        assert run_command("privacy", *command, "--store", "sqlite:///elsewhere.db").exit_code == 0
