"""Every setting has an effect: the server reads each of them after the check at the start, and limits hold."""

from __future__ import annotations

import asyncio
import os
import subprocess
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn

from tenuto.app import open_app
from tenuto.errors import InvalidSetting, StoreUnavailable
from tenuto.llm.scripted import ScriptedModel
from tenuto.server import run
from tenuto.sessions import EventKind, SessionEvent
from tenuto.settings import Settings, read_settings
from tests.clock import FakeClock
from tests.journeys.http_service import BASE
from tests.samples import fresh
from tests.servers import RedisServer, start_redis

_READ: set[str] = set()


class _Watched(Settings, frozen=True, kw_only=True):
    """Settings that note which of them are read."""

    def __getattribute__(self, name: str) -> Any:
        _READ.add(name)
        return super().__getattribute__(name)


@pytest.mark.requirement("T20")
def test_the_server_reads_every_setting(valkey: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A setting that is checked and passed on to nothing would be missing."""

    async def answer_once(config: uvicorn.Config) -> None:
        app: Any = config.app
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url=BASE) as http,
        ):
            assert (await http.post("/v1/sessions", json={"id": "s"})).is_success
            assert (await http.get("/metrics")).is_success

    monkeypatch.setattr(run._Server, "serve", lambda self, sockets: answer_once(self.config))
    monkeypatch.setattr(run, "configure_logging", lambda *_: None)
    store = f"{valkey.url}?prefix={fresh('effect')}"
    detector = "http://127.0.0.1:9"
    app: dict[str, Any] = {
        "lark_app_id": "cli_1",
        "lark_app_secret": "s",
        "lark_encrypt_key": "k",
        "lark_domain": detector,
    }
    settings = _Watched(store=store, journal=str(tmp_path), port=0, privacy_detector=detector, embedder="none", **app)
    _READ.clear()

    run.serve(settings)

    # The task engine reads its settings when it is opened.
    assert set(Settings.__struct_fields__) - _READ == {"tasks_database", "task_webhook", "task_webhook_secret"}


def test_an_idle_connection_outlives_those_of_clients_and_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that the server closes first may fail in the moment it is used again: aiohttp keeps them 15 s, nginx 60."""
    configs: list[uvicorn.Config] = []

    async def note(config: uvicorn.Config) -> None:
        configs.append(config)

    monkeypatch.setattr(run._Server, "serve", lambda self, sockets: note(self.config))
    monkeypatch.setattr(run, "configure_logging", lambda *_: None)

    run.serve(Settings(store="memory://", port=0, embedder="none"))

    assert configs[0].timeout_keep_alive > 60


@pytest.mark.parametrize("bound", [{"l1_sessions": 2}, {"l1_bytes": 7000}], ids=str)
async def test_l1_keeps_no_more_than_its_settings_allow(bound: dict[str, Any], tmp_path: Path) -> None:
    async with open_app(Settings(store=f"sqlite:///{tmp_path}/s.db", **bound), run_upkeep=False) as app:
        assert app.stores.cache is not None
        for _ in range(4):
            session = (await app.begin(app.scope(), "")).session
            await app.sessions.get(app.scope(), session.id)

        assert len(app.stores.cache) == 2


async def test_the_breaker_opens_after_the_failures_of_its_setting(tmp_path: Path) -> None:
    with start_redis(fsync="no") as server:
        settings = Settings(store=server.url, journal=str(tmp_path), breaker_failures=2)
        async with open_app(settings, run_upkeep=False) as app:
            circuit, closed = app.stores.circuit, []
            assert circuit is not None
            server.kill()
            for _ in range(2):
                with pytest.raises(StoreUnavailable):
                    await app.store.state.read_state(app.scope(), "any", "key")
                closed.append(circuit.closed)

    assert closed == [True, False]


async def test_upkeep_sweeps_at_the_interval_of_its_setting(fake_clock: FakeClock, tmp_path: Path) -> None:
    """The second session expires after the sweep at the start."""
    expired = asyncio.Event()

    async def hear(event: SessionEvent) -> None:
        if event.kind is EventKind.EXPIRED:
            expired.set()

    settings = Settings(
        store=f"sqlite:///{tmp_path}/s.db", retention=timedelta(minutes=1), sweep_every=timedelta(seconds=1)
    )
    async with open_app(settings, clock=fake_clock, listeners=[hear]) as app, asyncio.timeout(20):
        for _ in range(2):
            expired.clear()
            await app.sessions.create(app.scope(), None, None)
            fake_clock.advance(timedelta(minutes=1))
            await expired.wait()


@pytest.mark.requirement("X8")
async def test_titles_are_as_long_as_their_settings() -> None:
    question, title = "Where does the river begin and how long is it?", "The Long River and Its Source in the Hills"
    settings = Settings(
        store="memory://", title_characters=26, fallback_title_characters=20, model="a", summarizer_model="b"
    )
    for told, expected in ((title, "The Long River and Its..."), ("The Long River", "The Long River")):
        models = {"a": ScriptedModel("Far."), "b": ScriptedModel(told)}
        async with open_app(settings, models=models, run_upkeep=False) as app:
            for assistant in ("general", "goods"):
                reply = await app.ask(app.scope(user="ann"), question, assistant=assistant)
                await app.upkeep.drain()
                assert (await app.sessions.get(app.scope(user="ann"), reply.session_id)).title == expected


@pytest.mark.requirement("X8")
def test_compression_follows_its_settings() -> None:
    given = {
        "compress_at": 0.5,
        "compress_over": 12,
        "keep_verbatim": 6,
        "summary_tokens": 99,
        "summary_characters": 77,
    }
    environ = {f"TENUTO_{name.upper()}": str(value) for name, value in given.items()}

    context = read_settings(environ).policies().context
    off = read_settings({"TENUTO_COMPRESS_AT": "off", "TENUTO_COMPRESS_OVER": "off"}).policies().context

    assert {name: getattr(context, name) for name in given} == given
    assert (off.compress_at, off.compress_over) == (None, None)
    for name in ("keep_verbatim", "summary_tokens", "title_characters", "fallback_title_characters"):
        with pytest.raises(InvalidSetting, match=name):
            read_settings({f"TENUTO_{name.upper()}": "-1"})


@pytest.mark.requirement("C12")
def test_make_serve_leaves_the_store_to_the_settings() -> None:
    """A store named by the Makefile would hide REDIS_URL."""
    command = ["make", "--dry-run", "serve"]
    env = {"PATH": os.environ["PATH"], "REDIS_URL": "redis://127.0.0.1:1"}
    done = subprocess.run(command, cwd=Path(__file__).parents[3], env=env, capture_output=True, text=True, check=True)

    assert "tenuto serve" in done.stdout
    assert "TENUTO_STORE" not in done.stdout
    assert read_settings(env).store == "redis://127.0.0.1:1"
