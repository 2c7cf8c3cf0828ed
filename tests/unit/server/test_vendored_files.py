"""Files of others in the console are those that their note names."""

from __future__ import annotations

from hashlib import sha256
from importlib.resources import as_file, files


def test_vendored_files_are_unchanged_and_come_with_their_licence() -> None:
    with as_file(files("tenuto.server").joinpath("console", "vendor")) as vendor:
        noted = (vendor / "README.md").read_text().split("```")[1].split()
        found = {
            path.relative_to(vendor).as_posix(): sha256(path.read_bytes()).hexdigest() for path in vendor.glob("*/*")
        }
        folders = {path.name for path in vendor.iterdir() if path.is_dir()}

    assert dict(zip(noted[1::2], noted[0::2], strict=True)) == found
    assert {f"{folder}/LICENSE" for folder in folders} <= found.keys()
