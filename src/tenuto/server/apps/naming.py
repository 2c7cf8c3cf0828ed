"""What one request of an app says: its session, its user, the app, and whether it is a turn or a task of the app."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final, Self

import msgspec
from msgspec.structs import replace
from starlette.datastructures import Headers
from starlette.requests import Request

from tenuto.model import Scope
from tenuto.model.values import JsonObject, Value, check_id
from tenuto.server.apps.presets import IGNORE, AppRules, Source
from tenuto.server.auth import AuthContext, authenticate_request, service
from tenuto.server.json_io import unknown_fields
from tenuto.sessions.ids import derived_id

SESSION: Final = "Tenuto-Session"
"""The header that names the session of a request at any door, and tells it in the response."""
TASK: Final = "Tenuto-App-Task"
"""The response header that names the task of an app whose request was answered without a session."""
UNMARKED: Final = "other"
"""The task of a request without a mark that does not go on from the chat it names."""
STORE: Final = "Tenuto-Store"
"""The response header that says that `store: false` was overridden."""
DROPPED: Final = "Tenuto-Dropped-Tools"
"""The response header that names kinds of tools of an app that reached no model."""
OVERRIDDEN: Final = "overridden"
# An app that the settings describe by its sources alone.
_UNNAMED: Final = "app"
# Fields of a request for a response that name what precedes its input.
_CONTINUES: Final = ("previous_response_id", "conversation")


class AppRequest(Value, frozen=True, kw_only=True):
    """What a request says of itself.

    `session` is the name of its session, for `Sessions.find_named`; `None` if nothing names one. `explicit` says that
    the header `Tenuto-Session` named it, `by_history` that it is to be found by the history instead. `task` is empty
    for a turn; a task of the app is answered without a session. With `whole_history` the body has the conversation from
    its beginning. `store` says whether the turn may be stored; with `store_overridden`, although the client asked that
    it is not. `own_texts` are how texts begin and end that the app writes into messages of users, `summaries` how
    messages begin by which it replaces older ones. `dropped_tools` are kinds of tools that are left out of this
    request, `spare_tools` those that it can do without if its model does not run them.
    """

    scope: Scope
    session: str | None = None
    explicit: bool = False
    by_history: bool = False
    app: str = ""
    task: str = ""
    whole_history: bool = True
    store: bool = True
    store_overridden: bool = False
    own_texts: tuple[tuple[str, str], ...] = ()
    summaries: tuple[str, ...] = ()
    dropped_tools: tuple[str, ...] = ()
    spare_tools: tuple[str, ...] = ()

    @property
    def is_stored(self) -> bool:
        """Whether the request becomes a turn of a session, one that it names or that its history is found to be of."""
        return not self.task and self.store and (self.session is not None or self.by_history)

    @property
    def headers(self) -> dict[str, str]:
        """What the response tells beside its session."""
        overridden = OVERRIDDEN if self.store_overridden else ""
        headers = {TASK: self.task, STORE: overridden, DROPPED: ", ".join(self.dropped_tools)}
        return {name: value for name, value in headers.items() if value}

    @property
    def marks(self) -> dict[str, Any]:
        """The fields of the turn's request that its trace repeats."""
        return {"app": self.app, "app_task": self.task, "store_overridden": self.store_overridden}

    def without_spare_tools(self) -> Self:
        """The same request, without the tools that it can do without."""
        return replace(self, dropped_tools=(*self.dropped_tools, *self.spare_tools), spare_tools=())

    def kept_tools(self, tools: list[JsonObject] | None) -> list[JsonObject] | None:
        """The tools of the body without those that are left out."""
        if not self.dropped_tools or tools is None:
            return tools
        return [tool for tool in tools if tool.get("type") not in self.dropped_tools]


class AppNaming(Value, frozen=True, kw_only=True):
    """What a door of apps knows of a request before it reads the body; handlers take it instead of the scope."""

    HEADERS: ClassVar[tuple[str, ...]] = (SESSION,)

    request: Request
    admission: AuthContext

    @classmethod
    async def of_request(cls, request: Request) -> Self:
        """Admit the request."""
        return cls(request=request, admission=await authenticate_request(request))

    def read(self, body: msgspec.Struct) -> AppRequest:
        """What the request says of itself.

        Raises:
            Invalid: as `read_app_request`.
        """
        fields = {**msgspec.structs.asdict(body), **unknown_fields(self.request)}
        return read_app_request(self.request.headers, fields, service(self.request).apps, self.admission)


def read_app_request(headers: Headers, body: Mapping[str, Any], rules: AppRules, admission: AuthContext) -> AppRequest:
    """What a request says by its headers and its body, under the rules of the settings, for the admitted caller.

    An id that an app gives is valid for the owner of the scope and for that app alone: no other caller reaches the
    session by it, nor does another app.

    Raises:
        ScopeMismatch: headers and credential contradict each other.
        Invalid: an id is not one that a scope or a session may have.
    """
    preset = rules.preset_of(headers, body)
    scope = _user_of(headers, body, (*rules.user_from, *preset.user), admission).scope()
    explicit = _explicit_session(headers)
    session, named = explicit, ""
    whole_history = all(body.get(field) is None for field in _CONTINUES)
    if session is None:
        named = _first_value(headers, body, (*rules.session_from, *preset.session))
        if named and not preset.is_temporary(named):
            facts = (scope.tenant, scope.site, *scope.owner, preset.name, named)
            session = derived_id(f"{preset.name or _UNNAMED}-", *facts)
    # A chat that its app keeps no record of is named, too, and not to be found again.
    by_history = rules.by_history and whole_history and session is None and not named
    task = next((task for rule in preset.tasks if (task := rule.task_of(headers, body))), "")
    refused = body.get("store") is False
    ignored = (rules.store_false or preset.store_false) == IGNORE
    overridden = refused and ignored and (session is not None or by_history) and not task
    return AppRequest(
        scope=scope,
        session=session,
        explicit=explicit is not None,
        by_history=by_history,
        app=preset.name,
        task=task,
        whole_history=whole_history,
        store=not refused or overridden,
        store_overridden=overridden,
        own_texts=preset.own_texts,
        summaries=preset.summaries,
        dropped_tools=_kinds_among(body, preset.drop_tools),
        spare_tools=_kinds_among(body, preset.spare_tools),
    )


def _user_of(
    headers: Headers, body: Mapping[str, Any], sources: tuple[Source, ...], admission: AuthContext
) -> AuthContext:
    """The admission with the user that the app names, where `X-User-ID` may name one and does not."""
    caller = admission.caller
    if admission.user is not None or not (caller is None or caller.can_act_for_users):
        return admission
    user = _first_value(headers, body, sources)
    return replace(admission, user=user) if user else admission


def _kinds_among(body: Mapping[str, Any], kinds: tuple[str, ...]) -> tuple[str, ...]:
    """Which of these kinds of tools the request has."""
    if not kinds or not isinstance(tools := body.get("tools"), list):
        return ()
    given = [tool.get("type") for tool in tools if isinstance(tool, Mapping)]
    return tuple([kind for kind in kinds if kind in given])


def _explicit_session(headers: Headers) -> str | None:
    """The session that the request names itself; an empty header is none."""
    name = headers.get(SESSION)
    return check_id(name, f"the {SESSION} header") if name else None


def _first_value(headers: Headers, body: Mapping[str, Any], sources: tuple[Source, ...]) -> str:
    return next((value for source in sources if (value := source.value(headers, body))), "")
