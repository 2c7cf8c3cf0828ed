"""Master keys: read from a setting or a file; errors show none of them."""

from __future__ import annotations

import base64
import stat
from pathlib import Path

import pytest

from tenuto.cli.effective_settings import effective
from tenuto.errors import InvalidSetting
from tenuto.privacy.crypto.keyring import KeyRing, MasterKey, create_key_file, load_key_ring
from tenuto.settings import Settings, read_settings
from tests.clock import FakeClock

SECRET = bytes(range(32))
OTHER = bytes(range(32, 64))
TEXT = base64.b64encode(SECRET).decode()
OTHER_TEXT = base64.b64encode(OTHER).decode()


def written(folder: Path, text: str, mode: int = 0o600) -> Path:
    """A key file."""
    path = folder / "keys.toml"
    path.write_text(text)
    path.chmod(mode)
    return path


def ring_of(file: Path) -> KeyRing:
    ring = load_key_ring(file=file)
    assert ring is not None
    return ring


@pytest.mark.parametrize(
    "text",
    [
        TEXT,
        TEXT.rstrip("="),
        base64.urlsafe_b64encode(SECRET).decode(),
        SECRET.hex(),
        SECRET.hex().upper(),
        f"  {TEXT}\n",
    ],
)
def test_a_key_is_read_from_base64_and_hexadecimal(text: str) -> None:
    ring = load_key_ring(key=text)

    assert ring is not None
    assert ring.current("acme").secret == SECRET


@pytest.mark.parametrize("text", ["", "short", TEXT[:-8], TEXT + TEXT, SECRET.hex() + "00", "not a key!" * 4, "钥匙"])
def test_a_key_that_is_none_is_refused_without_being_shown(text: str) -> None:
    with pytest.raises(InvalidSetting, match="privacy_key") as excinfo:
        load_key_ring(key=text)

    assert not text or text not in str(excinfo.value)


def test_without_a_setting_there_is_no_ring() -> None:
    assert load_key_ring() is None


def test_a_new_file_is_its_owners_alone_and_is_read_back(tmp_path: Path, fake_clock: FakeClock) -> None:
    path = tmp_path / "keys.toml"

    name = create_key_file(path, clock=fake_clock)

    assert name == "2026-01"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert ring_of(path).current("anybody").name == name


def test_a_new_file_replaces_no_file(tmp_path: Path) -> None:
    """Overwriting a key file would lose everything it decrypts."""
    path = tmp_path / "keys.toml"
    create_key_file(path)
    before = path.read_bytes()

    with pytest.raises(InvalidSetting, match="privacy_key_file: the file already exists"):
        create_key_file(path)

    assert path.read_bytes() == before


def test_a_new_file_where_none_can_be_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match="privacy_key_file: cannot be made"):
        create_key_file(tmp_path / "nowhere" / "keys.toml")


def test_older_keys_are_found_by_their_fingerprint(tmp_path: Path) -> None:
    ring = ring_of(written(tmp_path, f'current = "new"\n[keys]\nold = "{TEXT}"\nnew = "{OTHER_TEXT}"\n'))
    old = MasterKey(name="whatever it is called", secret=SECRET).fingerprint

    found = ring.find("acme", old)

    assert ring.current("acme").secret == OTHER
    assert found is not None
    assert found.secret == SECRET
    assert ring.find("acme", "0" * 16) is None


def test_a_tenant_has_its_own_key_and_still_reaches_the_installations(tmp_path: Path) -> None:
    own = f'[tenants.acme]\ncurrent = "a"\nkeys = {{ a = "{OTHER_TEXT}" }}\n'
    ring = ring_of(written(tmp_path, f'current = "k"\n[keys]\nk = "{TEXT}"\n{own}'))
    installations = MasterKey(name="k", secret=SECRET).fingerprint

    assert ring.current("acme").secret == OTHER
    assert ring.current("evil").secret == SECRET
    assert ring.find("acme", installations) is not None
    assert ring.find("evil", ring.current("acme").fingerprint) is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("current = [", "is not valid TOML"),
        (f'[keys]\nk = "{TEXT}"\n', "missing required field `current`"),
        (f'current = "x"\n[keys]\nk = "{TEXT}"\n', "names 'x' as current, but has no such key"),
        (f'current = "k"\n[keys]\nk = "{TEXT[:-8]}"\n', "the key 'k' of the file has 27 bytes"),
        ('current = "k"\n[keys]\nk = "?"\n', "the key 'k' of the file is neither base64 nor hexadecimal"),
        ('current = "k"\n[keys]\nk = 7\n', "is not a key file: Expected `str`"),
        (f'current = "k"\nkesy = 1\n[keys]\nk = "{TEXT}"\n', "unknown field `kesy`"),
        (
            f'current = "k"\n[keys]\nk = "{TEXT}"\n[tenants.acme]\ncurrent = "a"\nkeys = {{}}\n',
            "[tenants.acme] names 'a' as current",
        ),
    ],
)
def test_a_file_that_is_no_key_file_is_refused_with_a_sentence(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(InvalidSetting, match="privacy_key_file") as excinfo:
        load_key_ring(file=written(tmp_path, text))

    assert says in str(excinfo.value)
    assert TEXT[:-8] not in str(excinfo.value)


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o601, 0o620, 0o666])
def test_a_file_that_others_reach_is_refused(tmp_path: Path, mode: int) -> None:
    path = written(tmp_path, f'current = "k"\n[keys]\nk = "{TEXT}"\n', mode)

    with pytest.raises(InvalidSetting, match="privacy_key_file: can be read or changed by others"):
        load_key_ring(file=path)


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o440, 0o640])
def test_a_file_that_only_owner_and_group_read_is_taken(tmp_path: Path, mode: int) -> None:
    assert ring_of(written(tmp_path, f'current = "k"\n[keys]\nk = "{TEXT}"\n', mode)).current("acme").secret == SECRET


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match="there is no such file"):
        load_key_ring(file=tmp_path / "absent")
    with pytest.raises(InvalidSetting, match="is not a file"):
        load_key_ring(file=tmp_path)


def test_no_key_is_shown_by_what_holds_it(tmp_path: Path) -> None:
    ring = ring_of(written(tmp_path, f'current = "k"\n[keys]\nk = "{TEXT}"\n'))
    settings = Settings(privacy_key=TEXT)

    assert repr(SECRET)[2:-1] not in repr(ring)
    assert ring.current("acme").fingerprint in repr(ring)
    assert effective(settings)["privacy_key"].value == "(hidden)"


def test_encryption_without_a_key_is_refused_at_the_start() -> None:
    with pytest.raises(InvalidSetting, match="encryption: needs a master key: set privacy_key or privacy_key_file"):
        read_settings({"TENUTO_ENCRYPTION": "true"})


def test_keys_come_from_one_place() -> None:
    with pytest.raises(InvalidSetting, match="privacy_key_file: conflicts with privacy_key"):
        Settings(privacy_key=TEXT, privacy_key_file="keys.toml")
