"""Joins the console's modules and styles into few files, so that a browser need not ask for each of them.

No tool outside Python is needed, because the modules keep to a narrow form: imports and exports stand at the beginning
of a line, defaults and variables (`let`) are not exported, and no module imports one that imports it. Other forms are
refused. Each module becomes a function that returns its exports:

    import { h } from "../dom.js";           const $views$icons = (() => {
    export function icon(name) { … }   →     const { h } = $dom;
                                             function icon(name) { … }
                                             return { icon }; })();

`app.js` holds what the first page needs. A module that is imported when needed, `import("./pages/tasks.js")`, is a file
of its own with all that it needs and `app.js` lacks. Names and lines stay, comments leave empty lines, and a source map
leads to the modules. Files in `vendor/` are served as they are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from posixpath import dirname, join, normpath, relpath
from typing import Final

ROOT: Final = "app.js"
_IMPORT: Final = re.compile(r'^import (?:(\{[^}]*\}|\* as \w+|\w+) from )?"([^"]+)";', re.MULTILINE)
_EXPORT: Final = re.compile(r"^export (?=(?:async )?(?:function\*?|class|const) (\w+))", re.MULTILINE)
_EXPORT_LIST: Final = re.compile(r"^export \{([^}]*)\};", re.MULTILINE)
_OTHER: Final = re.compile(r"^(?:import|export)\b(?!\()", re.MULTILINE)
_LAZY: Final = re.compile(r'(?<=\bimport\()"([^"]+)"(?=\))')
_ADDRESS: Final = re.compile(r'(?<=\bnew URL\()"([^"]+)"(?=, import\.meta\.url\))')
_COMMENT: Final = re.compile(r"^[ \t]*(?:/\*\*.*?\*/|//[^\n]*)[ \t]*$", re.MULTILINE | re.DOTALL)
_STYLE_COMMENT: Final = re.compile(r"/\*.*?\*/\n*", re.DOTALL)
_BASE64: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


@dataclass(frozen=True, slots=True)
class _Module:
    """A module of the console, and what it imports: at once, and when needed."""

    name: str
    source: str
    imports: tuple[str, ...]
    lazy: tuple[str, ...]


@dataclass(slots=True)
class _Output:
    """A file in the making: its lines, and the module and line that each comes from."""

    lines: list[str] = field(default_factory=list)
    origins: list[tuple[str, int] | None] = field(default_factory=list)

    def add(self, text: str, origin: str | None = None) -> None:
        for number, line in enumerate(text.split("\n")):
            self.lines.append(line)
            self.origins.append(None if origin is None else (origin, number))


def join_styles(styles: Iterable[str]) -> str:
    """The styles in this order, without comments."""
    return "".join(_STYLE_COMMENT.sub("", style) for style in styles)


def join_modules(sources: Mapping[str, str]) -> dict[str, str]:
    """`app.js` and the files that it imports when needed, by name, each with its source map (`app.js.map`).

    Raises:
        ValueError: a module does not keep to the form that is read here.
    """
    modules = {name: _read(name, source) for name, source in sources.items() if not _is_vendored(name)}
    first = _in_order(modules, ROOT, known=())
    parts, waiting = {ROOT: first}, [ROOT]
    while waiting:
        for name in (target for module in parts[waiting.pop()] for target in module.lazy):
            if name not in parts and not _is_vendored(name):
                parts[name] = _in_order(modules, name, known=first)
                waiting.append(name)
    joined: dict[str, str] = {}
    for name, part in parts.items():
        output = _write(name, part, first)
        joined[name] = "\n".join(output.lines)
        joined[f"{name}.map"] = _source_map(name, output)
    return joined


def _read(name: str, source: str) -> _Module:
    here = dirname(name)
    imports = [_resolve(here, match[2]) for match in _IMPORT.finditer(source)]
    lazy = [_resolve(here, match[1]) for match in _LAZY.finditer(source)]
    return _Module(name, source, tuple(imports), tuple(lazy))


def _in_order(modules: Mapping[str, _Module], root: str, known: Iterable[_Module]) -> list[_Module]:
    """The module and all that it imports and is not known, each after what it imports."""
    order: list[_Module] = []
    done = {module.name for module in known}
    open_now: set[str] = set()

    def visit(name: str) -> None:
        if name in done or _is_vendored(name):
            return
        if name in open_now or name not in modules:
            raise ValueError(f"console/{name}: {'imports itself' if name in open_now else 'does not exist'}")
        open_now.add(name)
        for other in modules[name].imports:
            visit(other)
        done.add(name)
        order.append(modules[name])

    visit(root)
    return order


def _write(name: str, part: list[_Module], first: list[_Module]) -> _Output:
    output = _Output()
    here = dirname(name)
    needed = {other for module in part for other in module.imports}
    for other in sorted(needed):
        if _is_vendored(other):
            output.add(f'import * as {_variable(other)} from "{_relative(other, here)}";')
    if name != ROOT:
        shared = ", ".join(_variable(module.name) for module in first if module.name in needed)
        output.add(f'import {{ {shared} }} from "{_relative(ROOT, here)}";')
    for module in part:
        _wrap(module, here, output)
    if name == ROOT:
        output.add(f"export {{ {', '.join(_variable(module.name) for module in part)} }};")
    else:
        output.add(f"export const {{ {', '.join(_exports(part[-1]))} }} = {_variable(name)};")
    output.add(f"//# sourceMappingURL={name.rpartition('/')[2]}.map\n")
    return output


def _wrap(module: _Module, place: str, output: _Output) -> None:
    """Add the module as a function; `place` is the folder that its addresses are relative to from now on."""
    here = dirname(module.name)

    def moved(match: re.Match[str]) -> str:
        return f'"{_relative(_resolve(here, match[1]), place)}"'

    def bound(match: re.Match[str]) -> str:
        names, lines = match[1], match[0].count("\n") * "\n"
        return lines if names is None else f"const {_pattern(names)} = {_variable(_resolve(here, match[2]))};{lines}"

    code = _COMMENT.sub(lambda match: match[0].count("\n") * "\n", module.source.rstrip("\n"))
    code = _IMPORT.sub(bound, _EXPORT_LIST.sub(lambda match: match[0].count("\n") * "\n", _EXPORT.sub("", code)))
    refused = _OTHER.search(code)
    if refused is not None:
        line = code.count("\n", 0, refused.start()) + 1
        raise ValueError(f"console/{module.name}:{line}: this form of import or export is not known")
    code = _ADDRESS.sub(moved, _LAZY.sub(moved, code))
    output.add(f"const {_variable(module.name)} = (() => {{ // {module.name}")
    output.add(code, module.name)
    output.add(f"return {{ {', '.join(_exports(module))} }};\n}})();")


def _exports(module: _Module) -> list[str]:
    listed = [each.strip() for match in _EXPORT_LIST.finditer(module.source) for each in match[1].split(",")]
    if any(" as " in each for each in listed):
        raise ValueError(f"console/{module.name}: an export under another name is not known")
    return [*(match[1] for match in _EXPORT.finditer(module.source)), *filter(None, listed)]


def _pattern(names: str) -> str:
    """What a declaration writes where an import writes these names."""
    if names.startswith("{"):
        return " ".join(names.replace(" as ", ": ").split())
    return names.removeprefix("* as ") if names.startswith("*") else f"{{ default: {names} }}"


def _variable(name: str) -> str:
    return "$" + re.sub(r"[^\w$]", "_", name.removesuffix(".js").replace("/", "$"))


def _is_vendored(name: str) -> bool:
    return name.startswith("vendor/")


def _resolve(here: str, specifier: str) -> str:
    return normpath(join(here, specifier))


def _relative(name: str, here: str) -> str:
    path = relpath(name, here or ".")
    return path if path.startswith("..") else f"./{path}"


def _source_map(name: str, output: _Output) -> str:
    """The map from lines to lines, by version 3 of the format. The modules are served beside the folder of the file."""
    sources = list(dict.fromkeys(origin[0] for origin in output.origins if origin is not None))
    numbers = {source: number for number, source in enumerate(sources)}
    mappings, before = [], (0, 0)
    for origin in output.origins:
        if origin is None:
            mappings.append("")
            continue
        now = numbers[origin[0]], origin[1]
        mappings.append("A" + _vlq(now[0] - before[0]) + _vlq(now[1] - before[1]) + "A")
        before = now
    up = "../" * (name.count("/") + 1)
    return json.dumps({"version": 3, "sources": [up + source for source in sources], "mappings": ";".join(mappings)})


def _vlq(number: int) -> str:
    """A number in base 64, five bits a digit, the sign in the lowest bit."""
    rest = (-number << 1) | 1 if number < 0 else number << 1
    digits = ""
    while True:
        rest, digit = rest >> 5, rest & 31
        digits += _BASE64[digit | 32 if rest else digit]
        if not rest:
            return digits
