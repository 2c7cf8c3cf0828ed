"""The privacy scan on a schedule: due once per interval and installation, counted without user text."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Sequence
from datetime import timedelta

import pytest

from tenuto.app import open_app
from tenuto.errors import InvalidSetting, SessionNotFound
from tenuto.llm import ModelCallLog
from tenuto.model import Changes, Scope
from tenuto.model.privacy import PiiMatch, Sink
from tenuto.privacy.detection.finder import PiiFinder
from tenuto.privacy.rules.folding import Work
from tenuto.server.metrics import Metrics
from tenuto.settings import Settings, read_settings
from tests.clock import FakeClock

pytestmark = pytest.mark.requirement("A14")


ANN = Scope(tenant="acme", user="ann")
WEEK = timedelta(days=7)
MAIL = "ann.lee@example.com"


async def test_a_scan_is_due_once_in_its_interval_and_tells_counts_only(
    fake_clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "tenuto.upkeep")
    settings = Settings(store="memory://", privacy_scan_every=WEEK, retention=timedelta(days=30))
    async with open_app(settings, clock=fake_clock, run_upkeep=False) as app:
        session, _ = await app.sessions.create(ANN, None, None)
        await app.stores.unredacted.sessions.patch(session.scope, session.id, Changes(title=f"Write to {MAIL}"))
        scan, meters = app.scheduled_scan, Metrics()
        assert scan is not None
        meters.watch(app.stores, ModelCallLog(), app.upkeep, scan=scan)

        await asyncio.gather(scan.scan_if_due(), scan.scan_if_due())
        fake_clock.advance(WEEK - timedelta(seconds=1))
        await scan.scan_if_due()
        assert (scan.scans, scan.violations) == (1, {Sink.TITLE: 1})
        assert b'tenuto_privacy_violations{sink="title"} 1.0' in meters.text()
        assert b"tenuto_privacy_scans_total 1.0" in meters.text()
        await app.store.sessions.patch(ANN, session.id, Changes(title="Mine"))
        fake_clock.advance(timedelta(seconds=1))
        await scan.scan_if_due()

    assert (scan.scans, scan.violations) == (2, {})
    first, second = [record for record in caplog.records if "privacy scan" in record.message]
    assert (first.levelno, second.levelno) == (logging.WARNING, logging.INFO)
    assert first.message.endswith("1 records, 0 unreadable, 0 sites locked, against the policy: 1 EMAIL in title")
    assert second.message.endswith("against the policy: nothing")
    assert MAIL not in caplog.text


async def test_a_scan_keeps_no_session_alive(fake_clock: FakeClock) -> None:
    settings = Settings(store="memory://", preset="multi_agent", privacy_scan_every=timedelta(days=5))
    async with open_app(settings, clock=fake_clock, run_upkeep=False) as app:
        assert app.scheduled_scan is not None
        turn = await app.begin(ANN, "hi")
        await app.finish(turn, "hello")
        for _ in range(2):
            fake_clock.advance(timedelta(days=5))
            await app.scheduled_scan.scan_if_due()

        with pytest.raises(SessionNotFound):
            await app.sessions.get(ANN, turn.session.id)


async def test_a_scan_searches_outside_the_event_loop(fake_clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_app(Settings(store="memory://"), clock=fake_clock, run_upkeep=False) as app:
        await app.finish(await app.begin(ANN, f"I am {MAIL}"), "Hello")
        searching: list[threading.Thread] = []
        find = PiiFinder.find

        def noted(finder: PiiFinder, text: str, work: Work | None = None) -> Sequence[PiiMatch]:
            if text:
                searching.append(threading.current_thread())
            return find(finder, text, work)

        monkeypatch.setattr(PiiFinder, "find", noted)
        async for _ in app.privacy.scan_all(fix=True):
            pass

    assert searching
    assert threading.current_thread() not in searching


async def test_upkeep_scans_at_the_interval_of_its_setting() -> None:
    async with open_app(Settings(store="memory://", privacy_scan_every=WEEK)) as app, asyncio.timeout(20):
        assert app.scheduled_scan is not None
        while not app.scheduled_scan.scans:  # noqa: ASYNC110
            await asyncio.sleep(0.001)


async def test_without_the_setting_nothing_is_scanned() -> None:
    async with open_app(read_settings({"TENUTO_PRIVACY_SCAN_EVERY": "off"}, store="memory://")) as app:
        assert app.scheduled_scan is None
    with pytest.raises(InvalidSetting, match="privacy_scan_every"):
        Settings(privacy_scan_every=timedelta(seconds=1))
