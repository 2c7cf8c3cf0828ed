"""Copies of values whose parts are valid already."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tenuto.errors import Invalid
from tenuto.model import Scope
from tenuto.model.values import replace_valid

ANN = Scope(tenant="acme", user="ann")


def test_a_copy_with_valid_parts_is_the_value_that_a_checked_copy_is() -> None:
    changed = replace_valid(ANN, persona="clerk", user=None)

    assert changed == replace(ANN, persona="clerk", user=None)
    assert Scope(tenant="acme", user="ann") == ANN


def test_only_a_checked_copy_refuses_parts() -> None:
    with pytest.raises(Invalid):
        replace(ANN, user="")

    assert replace_valid(ANN, user="").user == ""
