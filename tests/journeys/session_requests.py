"""Every request about one session, by name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import httpx

from tests.journeys.http_service import says

SessionRequest = Callable[[httpx.AsyncClient, str, dict[str, str]], Awaitable[httpx.Response]]


SESSION_REQUESTS: dict[str, SessionRequest] = {
    "get": lambda http, path, who: http.get(path, headers=who),
    "patch": lambda http, path, who: http.patch(path, headers=who, json={"title": "mine"}),
    "delete": lambda http, path, who: http.delete(path, headers=who),
    "messages": lambda http, path, who: http.get(f"{path}/messages", headers=who),
    "append": lambda http, path, who: http.post(f"{path}/messages", headers=who, json=says("x")),
    "turn": lambda http, path, who: http.post(f"{path}/turns", headers=who, json={"message": says("x")}),
    "attributes": lambda http, path, who: http.get(f"{path}/attributes", headers=who),
    "set attribute": lambda http, path, who: http.put(f"{path}/attributes/a", headers=who, json={"value": 1}),
    "reset": lambda http, path, who: http.post(f"{path}/reset", headers=who),
    "fork": lambda http, path, who: http.post(f"{path}/fork", headers=who),
    "truncate": lambda http, path, who: http.post(f"{path}/truncate", headers=who, json={"after": 0}),
    "export": lambda http, path, who: http.get(f"{path}/export", headers=who),
    "stream": lambda http, path, who: http.get(f"{path}/stream", headers=who),
    "stop": lambda http, path, who: http.post(f"{path}/stop", headers=who),
    "npc get": lambda http, path, who: http.get(path.replace("/v1/", "/v1/npc/"), headers=who),
    "npc delete": lambda http, path, who: http.delete(path.replace("/v1/", "/v1/npc/"), headers=who),
}
