"""Ids of this project are no secrets, unless their names say so; what only resembles them is found as before."""

from __future__ import annotations

from uuid import NAMESPACE_URL, uuid5

import pytest

from tenuto.model.privacy import PrivacyPolicy
from tenuto.model.turn import trace_id
from tenuto.privacy.detection.finder import PiiFinder
from tenuto.sessions import derived_id, fresh_id
from tenuto.tasks._records import place_for

FINDER = PiiFinder(PrivacyPolicy(also=("ORDER_ID",)))
UUID = "01a1ef4e-c666-788e-9ccb-b7378ca9b8e6"
IDS = {
    "session": fresh_id(),
    "of digits": "01990355-1384-7123-8123-138123456789",
    "step": f"{fresh_id()}:route.labour-law_2",
    "output": f"{fresh_id()}:read:12",
    "task under a key": f"{place_for(b'acme', 'k')}-0123456789abcdef",
    "its step": f"{place_for(b'acme', 'k')}-0123456789abcdef:read",
    "session under a key": derived_id("s-", "acme", "k"),
    "chat": derived_id("lark-", "acme", "chat"),
    "conversation": derived_id("conv_", "acme", "k"),
    "item": f"msg_{fresh_id()}",
    "trace": trace_id(fresh_id(), 3, fresh_id()),
    "response": "resp_" + trace_id(fresh_id(), 3, fresh_id()),
    "run": str(uuid5(NAMESPACE_URL, "run")),
}
FORMS = (
    '{{"step_key": "{0}"}}', "the key is {0}.", "电话 {0}", "session_id={0}", "task: {0}",
    "https://tenuto.example/v1/tasks/{0}?key={0}", "order number {0}",
)  # fmt: skip


@pytest.mark.parametrize("own", IDS.values(), ids=IDS)
def test_an_id_of_ours_matches_no_rule(own: str) -> None:
    assert [form for form in FORMS if FINDER.find(form.format(own))] == []


@pytest.mark.parametrize(
    "text",
    [
        "api_key: 3f9e2c1a-7b4d-4c6e-9a1f-2b3c4d5e6f70",
        f"token={UUID}.q8Zr1vXw92LmTk47",
        f"token: {UUID}:q8Zr1vXw92LmTk47Bd",
        f"api_key = {UUID}==",
        f"https://{UUID}:hunter2@host/x",
        f"step {UUID}:read password=hunter2!",
        f"{UUID}:read ann@example.com",
        f"password: {UUID}",
        f"api_key={UUID}",
        f'{{"client_secret": "{UUID}"}}',
        f"Authorization: Bearer {UUID}",
        f"ACCESS_TOKEN={UUID}",
        f"密钥是{UUID}",
        f"my password for the db is {UUID}",
        f"パスワードは{UUID}",
        "password: s-0123456789abcdef01234567",
        "token=t-0123456789abcdef01234567",
        "secret: t-0123456789abcdef01234567-0123456789abcdef89",
    ],
)
def test_what_holds_more_than_an_id_is_found(text: str) -> None:
    assert FINDER.find(text)
