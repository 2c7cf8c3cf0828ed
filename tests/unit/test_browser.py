"""Where no browser can be had, the tests of the page say so in one sentence, whatever went wrong on the way."""

from __future__ import annotations

import base64
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests import browser

# npm as it is called here: pack --silent --pack-destination <folder> <package>.
NPM = {
    "fails": "exit 1",
    "brings nothing": "exit 0",
    "hangs": "kill -STOP $$",
    "brings no archive": 'echo "no archive" > "$4/package.tgz"',
    "brings no browser": f'{shutil.which("cp")} "$ARCHIVE" "$4/package.tgz"',
}


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without a browser, apt or npm; an environment of its own to unpack into.

    It passes for the kind a browser is unpacked on, so that the way there is walked on every other kind as well.
    """
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.delenv("CHROMIUM", raising=False)
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    machine = SimpleNamespace(system=lambda: "Linux", machine=lambda: "x86_64")
    monkeypatch.setattr(browser, "platform", machine)
    monkeypatch.setattr(browser, "PLACES", ())
    monkeypatch.setattr(browser, "UNPACKED", tmp_path / "browser")
    return tmp_path


def program(path: Path, lines: str) -> None:
    path.write_text(f"#!/bin/sh\n{lines}\n")
    path.chmod(0o755)


def packed(path: Path, name: str, content: bytes) -> str:
    """An archive with one file, and its checksum."""
    with tarfile.open(path, "w:gz") as archive:
        member = tarfile.TarInfo(name)
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    return base64.b64encode(hashlib.sha512(path.read_bytes()).digest()).decode()


def wheel(folder: Path, name: str, version: str) -> None:
    """A package that pip would install, with nothing in it."""
    stem = f"{name.replace('-', '_')}-{version}"
    with zipfile.ZipFile(folder / f"{stem}-py3-none-any.whl", "w") as file:
        file.writestr(f"{stem}.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        file.writestr(f"{stem}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{stem}.dist-info/RECORD", "")


@pytest.mark.parametrize("way", NPM)
def test_one_sentence_says_what_to_install(bare: Path, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    archive = bare / "archive.tgz"
    packed(archive, "package/bin/chromium.br", b"this was never compressed")
    program(bare / "bin" / "npm", NPM[way])
    monkeypatch.setenv("ARCHIVE", str(archive))
    monkeypatch.setattr(browser, "LONGEST", 2 if way == "hangs" else 60)
    told = archive if way == "brings no browser" else None
    digest = hashlib.sha512(told.read_bytes() if told else b"no archive\n").digest()
    monkeypatch.setattr(browser, "INTEGRITY", base64.b64encode(digest).decode())

    with pytest.raises(browser.BrowserMissing) as missing:
        browser.obtain()

    assert str(missing.value) == browser.MISSING


def test_npm_is_taken_by_its_checksum_alone(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package of that name and version that is another file is not installed, so nothing of it runs."""
    name, version = browser.NPM.split(" ")[0].split("==")
    wheels = bare / "wheels"
    wheels.mkdir()
    wheel(wheels, name, version)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))

    with pytest.raises(subprocess.CalledProcessError):
        browser.npm_command(bare)

    assert not (bare / "node").exists()


def test_archives_are_unpacked_by_a_python_without_filters(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """3.11.0 to 3.11.3 have none."""
    extractall = tarfile.TarFile.extractall
    monkeypatch.delattr(tarfile, "data_filter")
    monkeypatch.setattr(tarfile.TarFile, "extractall", lambda self, path: extractall(self, path))
    packed(bare / "archive.tgz", "package/file", b"here")

    browser.extract(bare / "archive.tgz", bare)

    assert (bare / "package" / "file").read_bytes() == b"here"


def test_no_file_of_an_archive_lands_outside(bare: Path) -> None:
    packed(bare / "archive.tgz", f"..{os.sep}outside", b"here")

    with pytest.raises(tarfile.TarError):
        browser.extract(bare / "archive.tgz", bare / "bin")

    assert not (bare / "outside").exists()
