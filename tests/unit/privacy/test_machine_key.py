"""The secret of a machine, from which the keys of digests in traces are derived where there is no master key."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from tenuto.privacy.crypto.machine_key import MachineKey


def test_processes_of_a_machine_share_one_secret_that_only_its_owner_reads(tmp_path: Path) -> None:
    folder = tmp_path / "state" / "journal"
    first, second, other = MachineKey(folder), MachineKey(folder), MachineKey(tmp_path)

    assert (first.name, first.derive("a")) == (second.name, second.derive("a"))
    assert len({first.derive("a"), first.derive("b"), other.derive("a")}) == 3
    assert first.name != other.name
    assert [(path.name, path.stat().st_mode & 0o777) for path in folder.iterdir()] == [("trace.key", 0o600)]


def test_where_it_cannot_be_kept_a_process_has_its_own(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").touch()
    first, second = MachineKey(tmp_path / "file"), MachineKey(tmp_path / "file")

    assert first.derive("a") == first.derive("a")
    assert first.derive("a") != second.derive("a")
    assert "unchecked" in caplog.text


def test_a_folder_that_has_the_secret_is_only_read(tmp_path: Path) -> None:
    first = MachineKey(tmp_path).name
    changed = tmp_path.stat().st_mtime_ns

    assert MachineKey(tmp_path).name == first
    assert tmp_path.stat().st_mtime_ns == changed


@pytest.mark.parametrize("content", [b"", b"cut", b"x" * 100])
def test_a_damaged_secret_is_not_used(tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes) -> None:
    (tmp_path / "trace.key").write_bytes(content)
    first, second = MachineKey(tmp_path), MachineKey(tmp_path)

    assert first.derive("a") != second.derive("a")
    assert "unchecked" in caplog.text
    assert (tmp_path / "trace.key").read_bytes() == content


@pytest.mark.parametrize("of_another_process", [None, b"x" * 32])
def test_the_first_secret_is_kept_where_there_are_no_hard_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, of_another_process: bytes | None
) -> None:
    def link(part: Path, path: Path) -> None:
        if of_another_process is not None:
            path.write_bytes(of_another_process)
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", link)
    first = MachineKey(tmp_path).name
    kept = (tmp_path / "trace.key").read_bytes()

    assert MachineKey(tmp_path).name == first
    assert of_another_process in (None, kept)
    assert [path.name for path in tmp_path.iterdir()] == ["trace.key"]
