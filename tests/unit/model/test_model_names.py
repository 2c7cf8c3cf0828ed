"""The names of models that callers may give."""

from __future__ import annotations

import pytest

from tenuto.errors import InvalidSetting
from tenuto.model.model_names import read_model_names

NAMES = read_model_names(
    "openai:gpt-5.4, anthropic:*, acme/openai:o4, router:meta/llama",
    "gpt-5=openai:gpt-5.4, helper=general, smart = openai:o4",
)


@pytest.mark.parametrize(
    ("tenant", "name", "model"),
    [
        ("acme", "openai:gpt-5.4", "openai:gpt-5.4"),
        ("acme", "gpt-5", "openai:gpt-5.4"),
        ("acme", "anthropic:claude-haiku-5-5", "anthropic:claude-haiku-5-5"),
        ("acme", "anthropic:", None),
        ("acme", "openai:gpt-5.4-mini", None),
        ("acme", "gpt-5.4", None),
        ("acme", "openai:o4", "openai:o4"),
        ("acme", "smart", "openai:o4"),
        ("other", "openai:o4", None),
        ("other", "smart", None),
        ("other", "router:meta/llama", "router:meta/llama"),
    ],
)
def test_an_allow_list_admits_models_by_tenant(tenant: str, name: str, model: str | None) -> None:
    meant = NAMES.resolve(name)
    assert (meant if NAMES.admits(tenant, meant) else None) == model


def test_a_listing_has_what_the_tenant_may_name() -> None:
    everyones = ["general", "gpt-5", "helper", "openai:gpt-5.4", "router:meta/llama"]
    assert sorted(NAMES.listed("other", ["general"])) == everyones
    assert sorted(NAMES.listed("acme", ["general"])) == sorted([*everyones, "openai:o4", "smart"])


@pytest.mark.parametrize(
    ("models", "aliases", "said"),
    [
        ("gpt-5.4", None, "allowed_models: 'gpt-5.4' is not written as provider:model"),
        ("*", None, "allowed_models: '*' is not"),
        ("openai:*-mini", None, "allowed_models: 'openai:*-mini' is not"),
        ("a/b/openai:o4", None, "allowed_models: 'a/b/openai:o4' is not"),
        (None, "gpt-5", "model_aliases: 'gpt-5' is not written as alias=provider:model"),
        (None, "=openai:o4", "model_aliases: '=openai:o4' is not"),
        (None, "a=openai:o4, a=openai:o5", "model_aliases: sets 'a' twice"),
        (None, "a=b, b=openai:o5", "model_aliases: 'a' stands for another alias"),
    ],
)
def test_an_entry_that_cannot_be_read_stops_the_start(models: str | None, aliases: str | None, said: str) -> None:
    with pytest.raises(InvalidSetting, match="^" + said.replace("*", r"\*")):
        read_model_names(models, aliases)
