"""A clock, and an encrypted store with its backend."""

from __future__ import annotations

import pytest

from tenuto.stores.encrypted import EncryptedStore
from tests.clock import FakeClock
from tests.doubles import MemoryStore
from tests.unit.stores.sealed_house import encrypted


@pytest.fixture
def clock() -> FakeClock:
    """A clock that the test moves."""
    return FakeClock()


@pytest.fixture
def backend() -> MemoryStore:
    """What lies below the encryption."""
    return MemoryStore()


@pytest.fixture
def store(backend: MemoryStore) -> EncryptedStore:
    """A store that seals what it is given; rooms of other backends have their own."""
    return encrypted(backend)
