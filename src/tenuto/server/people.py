"""Routes of persons: which users of a site are one person, and how a person or an admin links and parts them."""

from __future__ import annotations

from datetime import datetime
from typing import Final, Self

from tenuto.access import LinkedBy, Person
from tenuto.app import Tenuto
from tenuto.model import Scope
from tenuto.model.values import JsonObject, View
from tenuto.server.auth import AuthContext
from tenuto.server.handlers import Answer
from tenuto.server.keys import check_admin
from tenuto.server.openapi import Router
from tenuto.server.privacy import actor_name
from tenuto.server.requests import LinkIdentity, UseLinkCode

routes = Router("people", prefix="/v1/person")
THEMSELVES: Final = "themselves"
_PERSON: Final[JsonObject] = {
    "id": "5d1f8a3c90b2e764",
    "identities": [
        {"user": "ann", "linked_at": "2026-11-19T08:00:00Z", "how": "code", "by": "themselves"},
        {"user": "ou_84aad35d", "linked_at": "2026-11-19T08:00:00Z", "how": "code", "by": "themselves"},
    ],
}


class IdentityView(View, frozen=True, kw_only=True):
    """A user as which the person is known, when it was linked, how and by whom."""

    user: str
    linked_at: datetime
    how: LinkedBy
    by: str


class PersonView(View, frozen=True, kw_only=True):
    """The users who are one person, in the order in which they were linked; null and none where there is no link."""

    id: str | None
    identities: list[IdentityView]

    @classmethod
    def of(cls, person: Person | None) -> Self:
        """The view of a person."""
        if person is None:
            return cls(id=None, identities=[])
        return cls(id=person.id, identities=list(map(IdentityView.of, person.identities)))


class LinkCodeView(View, frozen=True, kw_only=True):
    """A code that links the caller's user with the one who uses it, once and until it expires."""

    code: str
    expires_at: datetime


@routes.get("", example=_PERSON)
async def get_person(scope: Scope, tenuto: Tenuto) -> PersonView:
    """Get the users who are the same person as the caller's."""
    return PersonView.of(await tenuto.people.find(scope))


@routes.post("/code", 201, example={"code": "7K3QD-M2XVA", "expires_at": "2026-11-19T08:10:00Z"})
async def show_link_code(scope: Scope, tenuto: Tenuto) -> Answer[LinkCodeView]:
    """Create a code for the caller's user, in place of the one before.

    Whoever types it at another door, within its lifetime (`link_code_life`), becomes the same person.
    """
    text, expires_at = await tenuto.people.show_code(scope)
    return Answer(LinkCodeView(code=text, expires_at=expires_at), 201, {"Cache-Control": "no-store"})


@routes.post("/link", example=_PERSON)
async def use_link_code(scope: Scope, tenuto: Tenuto, body: UseLinkCode) -> PersonView:
    """Link the caller's user with the one to whom a code was shown.

    A code that is wrong, used, too old, or of another tenant or site, is 404 `link_code_refused`, whatever the cause;
    after five of them the user waits (429 `too_many_link_codes`).
    """
    return PersonView.of(await tenuto.people.use_code(scope, body.code, by=THEMSELVES))


@routes.post("/identities", example=_PERSON)
async def link_identity(admission: AuthContext, tenuto: Tenuto, body: LinkIdentity) -> PersonView:
    """Make the user that the request names and another one the same person. For admins."""
    check_admin(admission, "linking users is")
    return PersonView.of(await tenuto.people.link(admission.scope(), body.user_id, by=actor_name(admission)))


@routes.delete("/identities/{user_id}", example={"id": None, "identities": []})
async def unlink_identity(admission: AuthContext, tenuto: Tenuto, user_id: str) -> PersonView:
    """Part a user of the caller's person from the others. Each keeps what was said as this user.

    The answer is the person that is left; a user who is not linked with the caller's is 404 `identity_not_found`.
    """
    scope = admission.scope()
    own = admission.caller is not None and admission.caller.user == scope.user
    by = THEMSELVES if own else actor_name(admission)
    return PersonView.of(await tenuto.people.unlink(scope, user_id, by=by, informed=scope.user if own else None))
