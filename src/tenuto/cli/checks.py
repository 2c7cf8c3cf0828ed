"""What the doctor looks at: each check gives a finding, and each wrong one says what to do."""

from __future__ import annotations

import platform
import shutil
import sqlite3
import time
from contextlib import suppress
from datetime import timedelta
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from tenuto.access import ApiKeys
from tenuto.app import Tenuto
from tenuto.cli.effective_settings import duration, mask_password
from tenuto.cli.terminal import moment, pluralize
from tenuto.errors import (
    DataKeysDamaged,
    DecryptionFailed,
    ForeignStore,
    InvalidSetting,
    NewerStore,
    PackageMissing,
    SessionNotFound,
    StoreDamaged,
    StoreFull,
    StoreReadOnly,
    TenutoError,
)
from tenuto.extras import install_folder
from tenuto.model import AppendBatch, Draft, NewSession, Page, Retention, Role, Scope, SessionQuery, text_part
from tenuto.model.policy import OnStoreDown
from tenuto.model.scope import SYSTEM
from tenuto.model.status import LARGE_LOG_ADVICE, is_large_log
from tenuto.model.store_reports import DurabilityFinding
from tenuto.model.urls import is_loopback
from tenuto.model.values import Value
from tenuto.ports import DurabilityReport, SessionStore, utc_now
from tenuto.sessions import fresh_id
from tenuto.settings import DEFAULT_STORE, Settings
from tenuto.stores.engine.journal_files import count_journal, files_from_before
from tenuto.stores.factory import is_network_store
from tenuto.wiring.stores import journal_folder, writable

_OWN_SCOPE: Final = replace(SYSTEM, site="doctor")
_DRIVERS: Final = ("hiredis", "asyncpg")
_MIB: Final = 1024 * 1024
_LITTLE_ROOM: Final = 512 * _MIB
_NO_ROOM: Final = 32 * _MIB
# Reading every page of a larger file would keep the reader waiting.
_CHECKED_WHOLE: Final = 256 * _MIB
_CLOCK_SLACK: Final = timedelta(minutes=5)
# No clock that is right shows a time before this release was made.
_MADE_IN: Final = 2026


class CheckStatus(StrEnum):
    """How a check came out."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


class Finding(Value, frozen=True, kw_only=True, omit_defaults=False):
    """One line of the doctor's."""

    name: str
    status: CheckStatus
    message: str
    advice: str | None = None


def ok(name: str, says: str) -> Finding:
    """What is as it should be."""
    return Finding(name=name, status=CheckStatus.OK, message=says)


def warn(name: str, says: str, advice: str) -> Finding:
    """What works, and should be changed."""
    return Finding(name=name, status=CheckStatus.WARNING, message=says, advice=advice)


def fail(name: str, says: str, advice: str) -> Finding:
    """What does not work."""
    return Finding(name=name, status=CheckStatus.ERROR, message=says, advice=advice)


# Before anything is opened


def versions() -> list[Finding]:
    """What this runs on; a driver that is missing matters only to a store that needs it, which says so itself."""
    drivers = ", ".join(f"{name} {_installed_version(name)}" for name in _DRIVERS)
    folder = install_folder()
    # Commands that install an extra are for this folder.
    source = "" if folder is None else f", installed from {folder}"
    return [
        ok(
            "tenuto",
            f"{_installed_version('tenuto')} on Python {platform.python_version()}, {platform.system()}{source}",
        ),
        ok("drivers", f"SQLite {sqlite3.sqlite_version}, {drivers}"),
    ]


def _installed_version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def settings_error(error: TenutoError) -> Finding:
    """A setting that stops every start."""
    if isinstance(error, PackageMissing):
        return fail("settings", str(error), error.install)
    setting = error.setting if isinstance(error, InvalidSetting) else "the setting"
    variable = setting if setting.isupper() else f"TENUTO_{setting.upper()}"
    return fail("settings", str(error), f"correct or unset the environment variable {variable}")


def settings_ok(settings: Settings) -> Finding:
    """Settings that fit together, as Settings itself made sure, and rules for apps that exist."""
    if settings.apps or settings.session_from or settings.user_from:
        # Loading the server takes a while.
        from tenuto.server.apps.presets import AppRules

        try:
            AppRules.of(settings)
        except InvalidSetting as error:
            return settings_error(error)
    return ok("settings", f"valid, preset {settings.preset}")


# The store


def can_begin(file: Path, settings: Settings) -> bool:
    """Whether there is a folder for a file that is not there; the default one is made with it."""
    return file.absolute().parent.is_dir() or settings.store == DEFAULT_STORE


def store_absent(file: Path) -> Finding:
    """A file that is not there, before its first use or after it was moved away."""
    file = file.absolute()
    log = file.with_name(f"{file.name}-wal")
    if log.exists():
        says = f"there is no file {file}, though its log {log.name} is there"
        return fail("store", says, f"put the file back, or remove {log} to begin with a new store")
    says = f"the store {file} does not exist yet"
    return warn("store", says, "`tenuto serve` or `tenuto chat` makes it; name another one with --store")


async def answers(app: Tenuto) -> Finding:
    """Whether the store can be reached."""
    start = time.perf_counter()
    await app.store.upkeep.ping()
    return ok("store", f"{mask_password(app.settings.store)} answers in {_seconds_since(start)}")


async def check_round_trip(sessions: SessionStore) -> Finding:
    """Write a session, read it, delete it, in a scope without other sessions."""
    session_id, part = fresh_id(), text_part("Is everything held?")
    draft = Draft(id=fresh_id(), role=Role.USER, sent_at=utc_now(), parts=(part,))
    # Should we be stopped halfway, a sweep takes it away.
    new = NewSession(retention=Retention(idle=timedelta(hours=1)))
    start = time.perf_counter()
    try:
        await sessions.append(_OWN_SCOPE, session_id, AppendBatch(id=fresh_id(), messages=(draft,), create=new))
        page = await sessions.messages(_OWN_SCOPE, session_id, Page())
    finally:
        with suppress(SessionNotFound):
            await sessions.delete(_OWN_SCOPE, session_id)
    if [message.parts for message in page.messages] != [(part,)]:
        return fail("round trip", "what was read is not what was written", "restore the store from a backup")
    if await _still_there(sessions, session_id):
        return fail("round trip", "a deleted session is still there", "restore the store from a backup")
    return ok("round trip", f"written, read and deleted in {_seconds_since(start)}")


async def check_durability(store: object) -> list[Finding]:
    """How safely a server keeps what it acknowledged; of a file `check_sqlite_file` tells."""
    return (
        [_durability_check(finding) for finding in await store.durability_findings()]
        if isinstance(store, DurabilityReport)
        else []
    )


def _durability_check(finding: DurabilityFinding) -> Finding:
    if finding.advice is None:
        return ok(finding.name, finding.message)
    return (fail if finding.loses_acknowledged else warn)(finding.name, finding.message, finding.advice)


async def _still_there(sessions: SessionStore, session_id: str) -> bool:
    try:
        await sessions.get(_OWN_SCOPE, session_id)
    except SessionNotFound:
        return False
    return True


def store_error(settings: Settings, error: TenutoError) -> Finding:
    """A store that cannot be opened or used."""
    return fail("store", f"{mask_password(settings.store)}: {error}", _store_advice(settings, error))


def store_timeout(settings: Settings, seconds: int) -> Finding:
    """A store that keeps us waiting."""
    says = f"{mask_password(settings.store)} did not finish the check within {seconds} seconds"
    return fail("store", says, "check its load and the network in between")


def _store_advice(settings: Settings, error: TenutoError) -> str:
    match error:
        case DataKeysDamaged(tenant=tenant):
            return damaged_keys_advice(tenant)
        case DecryptionFailed() | InvalidSetting(setting="privacy_key" | "privacy_key_file"):
            return "set TENUTO_PRIVACY_KEY_FILE (or TENUTO_PRIVACY_KEY) to the key that encrypted this store"
        case PackageMissing(install=install):
            return install
    return _file_advice(error) if settings.store.startswith("sqlite") else _server_advice(error)


def _file_advice(error: TenutoError) -> str:
    match error:
        case StoreFull():
            return "free some disk space"
        case StoreReadOnly():
            return "give this user write access to the file and its folder; until then only reading commands work"
        case StoreDamaged():
            return "stop the server and restore a backup"
        case NewerStore():
            return "upgrade tenuto to the release that wrote it, or newer"
        case ForeignStore():
            return "point TENUTO_STORE or --store at another file"
        case InvalidSetting():
            return "make the folder, or point TENUTO_STORE or --store at another file"
        case _:
            return "check that this user may read and write the file, and that the disk is healthy"


def _server_advice(error: TenutoError) -> str:
    match error:
        case StoreFull():
            return "give the server more memory or disk"
        case StoreReadOnly():
            return "point TENUTO_STORE at a primary, and check that it can write its files and reach its replicas"
        case InvalidSetting():
            return "correct TENUTO_STORE or --store"
        case _:
            return "start the server, and check host, port, user and password in TENUTO_STORE"


def damaged_keys_advice(tenant: str) -> str:
    """What helps where a tenant's keys were changed in the store: not another master key, which is the right one."""
    return (
        f"the master key is right, but the record of tenant {tenant}'s keys in the store is damaged: "
        "restore the store from a backup; nothing else decrypts their data"
    )


def check_sqlite_file(file: Path, settings: Settings) -> list[Finding]:
    """How the file lies on disk, and how safely."""
    return [
        _check_file_size(file),
        _check_file_durability(file, settings),
        _check_integrity(file),
        _check_disk_space(file),
    ]


def _check_file_size(file: Path) -> Finding:
    log = file.with_name(f"{file.name}-wal")
    log_size = log.stat().st_size if log.exists() else 0
    says = f"{file.absolute()}, {_size(file.stat().st_size)}, write-ahead log {_size(log_size)}"
    if file.stat().st_mode & 0o077:
        return warn("file", f"{says}, open to other users", f"chmod 600 {file}")
    if is_large_log(log_size, file.stat().st_size):
        return warn("file", f"{says}: the log has grown large", LARGE_LOG_ADVICE)
    return ok("file", says)


def _check_file_durability(file: Path, settings: Settings) -> Finding:
    from tenuto.stores.sqlite import can_be_written

    if not can_be_written(file.absolute()):
        return ok("durability", "not checked, the place is read-only: nothing is written here")
    mode, safety = "unreadable", settings.sqlite_synchronous
    with suppress(TenutoError):
        mode = _read_pragma(file, "PRAGMA journal_mode")
    says = f"journal_mode {mode}, synchronous {safety}"
    if mode != "wal":
        return fail("durability", says, "stop all programs that use the file and start tenuto again")
    if safety != "full":
        advice = "a power failure may lose the latest turns; set TENUTO_SQLITE_SYNCHRONOUS=full to keep them"
        return warn("durability", says, advice)
    return ok("durability", f"{says}: every acknowledged turn is on disk")


def _check_integrity(file: Path) -> Finding:
    if file.stat().st_size > _CHECKED_WHOLE:
        return ok("integrity", f"not checked, the file is larger than {_size(_CHECKED_WHOLE)}")
    try:
        verdict = _read_pragma(file, "PRAGMA quick_check(1)")
    except (StoreDamaged, ForeignStore):
        verdict = ""
    except TenutoError as error:
        advice = "give this user write access to the file and its folder, or copy both files to a folder you may write"
        return warn("integrity", f"not checked: {error}", advice)
    if verdict != "ok":
        return fail("integrity", "SQLite finds the file damaged", "stop the server and restore a backup")
    return ok("integrity", "SQLite finds no damage")


def _read_pragma(file: Path, pragma: str) -> str:
    # Other stores do without it.
    from tenuto.stores.sqlite import read_pragma

    return str(read_pragma(file.absolute(), pragma))


def _check_disk_space(file: Path) -> Finding:
    free = shutil.disk_usage(file.absolute().parent).free
    says = f"{_size(free)} free"
    if free < _NO_ROOM:
        return fail("disk", says, "free disk space before turns are refused")
    return warn("disk", says, "free disk space soon") if free < _LITTLE_ROOM else ok("disk", says)


# While it is away


def outages(settings: Settings) -> list[Finding]:
    """How outages of a server are met; it need not answer to tell."""
    if not is_network_store(settings.store):
        return []
    folder = journal_folder(settings)
    return [_check_breaker(settings), _check_journal(settings, folder), *_check_other_journals(settings, folder)]


def _check_breaker(settings: Settings) -> Finding:
    if not settings.breaker_failures:
        says = "off: while the store does not answer, every request waits for it"
        return warn("breaker", says, "unset TENUTO_BREAKER_FAILURES, which is 5 by default")
    after, rest = pluralize(settings.breaker_failures, "call"), duration(settings.breaker_reset)
    return ok("breaker", f"after {after} in a row without an answer, calls are rejected for {rest}")


def _check_journal(settings: Settings, folder: Path) -> Finding:
    """The journal that this store has on this machine, or will have once it is needed."""
    place = next(each for each in (folder, *folder.parents) if each.exists())
    if not writable(place):
        says = f"{place} cannot be written: while the store does not answer, turns are refused"
        is_used = settings.policies().sessions.on_store_down is OnStoreDown.JOURNAL
        advice = "give this user write access, or point TENUTO_JOURNAL at another folder"
        return (fail if is_used else warn)("journal", says, advice)
    counts = count_journal(folder)
    says = f"{folder}: {pluralize(counts.waiting, 'turn')} waiting, {counts.quarantined} quarantined"
    if counts.unreadable:
        says = f"{says}, {pluralize(counts.unreadable, 'file')} unreadable"
        return fail("journal", says, "give this user read access, or restore them from a backup: they may hold turns")
    if old_files := files_from_before(folder):
        says = f"{says}; turns of a development version in {', '.join(old_files)}"
        return fail("journal", says, "start the version that wrote them until the store has them, or delete the files")
    if counts.quarantined:
        return warn("journal", says, "`tenuto journal` lists those that the store can never accept, and says why")
    if counts.waiting:
        return warn("journal", says, "a running server delivers them as soon as the store answers")
    return ok("journal", says)


def _check_other_journals(settings: Settings, folder: Path) -> list[Finding]:
    """Journals of other stores, in which turns wait: this one may have had another address once."""
    own = count_journal(folder)
    moving = f"stop its servers and move journal.db to {folder}"
    if own.waiting or own.quarantined or own.unreadable:
        moving = f"{moving}, not before the one there is empty (`tenuto journal`): it would be overwritten"
    advice = f"start a server with the store they belong to; if it only changed its address, {moving}"
    waiting_counts = [
        (other, count_journal(other).waiting) for other in settings.journals().glob("*/") if other != folder
    ]
    return [
        warn("other journal", f"{other}: {pluralize(waiting, 'turn')} waiting for another store", advice)
        for other, waiting in sorted(waiting_counts)
        if waiting
    ]


# What it holds


async def holdings(app: Tenuto, scope: Scope) -> Finding:
    """How much the tenant has."""
    stats = await app.sessions.stats(scope)
    says = f"tenant {scope.tenant}: {pluralize(stats.sessions, 'session')}, {pluralize(stats.messages, 'message')}"
    if app.settings.store.startswith("memory"):
        return warn(
            "sessions", f"{says}, in memory", "they are lost when the process ends; set TENUTO_STORE to keep them"
        )
    return ok("sessions", says)


async def clock(app: Tenuto, scope: Scope) -> Finding:
    """Whether the time is believable: after this release was made, and not before the newest change."""
    now = utc_now()
    if now.year < _MADE_IN:
        return fail("clock", f"it shows {moment(now)}", "set the clock, preferably by NTP: retention depends on it")
    newest = (await app.sessions.list(scope, SessionQuery(limit=1))).sessions
    if newest and newest[0].updated_at > now + _CLOCK_SLACK:
        says = f"it shows {moment(now)}, and the newest session changed at {moment(newest[0].updated_at)}"
        return fail("clock", says, "set the clock, preferably by NTP, on every machine that writes to this store")
    return ok("clock", moment(now))


async def credentials(app: Tenuto) -> Finding:
    """How callers of the server prove who they are."""
    settings = app.settings
    keys = await ApiKeys(store=app.store.state, clock=utc_now).list()
    usable = sum(not key.revoked for key in keys)
    ways = [f"API keys ({usable} usable, {len(keys) - usable} revoked)"] if keys else []
    if settings.jwt_secret or settings.jwt_key_file or settings.jwt_jwks_file:
        ways.append("JWT")
    if ways:
        return ok("auth", " and ".join(ways))
    advice = "make a key with: tenuto keys create --tenant ID"
    if not is_loopback(settings.host):
        return fail("auth", f"no credential is configured, and host {settings.host} is not loopback", advice)
    return warn("auth", "no credential is configured, so the server listens on loopback only", advice)


def _seconds_since(start: float) -> str:
    return f"{(time.perf_counter() - start) * 1000:.1f} ms"


def _size(count: int) -> str:
    for unit, size in (("GiB", 1024 * _MIB), ("MiB", _MIB), ("KiB", 1024)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return pluralize(count, "byte")
