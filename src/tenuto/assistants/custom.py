"""Custom assistants: files in a folder, in TOML or in Python.

A TOML file names persona, preset, model and tools; a Python file defines `assistant()`, which returns an `Assistant`.
Tools are plain functions with types and a docstring.
"""

from __future__ import annotations

import dataclasses
import difflib
import importlib.util
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import replace

from tenuto.assistants.assistant import Assistant, Missing
from tenuto.assistants.function_tools import make_tool
from tenuto.errors import InvalidSetting, PackageMissing
from tenuto.model.generation import Persona
from tenuto.model.policy import Preset, preset
from tenuto.model.prompt import Language, PromptPolicy
from tenuto.model.values import JsonObject, Value
from tenuto.ports import Tool
from tenuto.user_files import describe_import_error, loading_error

_SETTING: Final = "assistants"
_Policy = TypeVar("_Policy", bound=Value)
# What an Assistant made in code may hold otherwise, and what fails at once or with the first turn.
_KINDS: Final[Mapping[str, type]] = {
    "name": str,
    "titles": Mapping,
    "description": Mapping,
    "system": Mapping,
    "personas": Mapping,
    "policies": Preset,
    "prompt": PromptPolicy,
    "tools": tuple,
}


class _PersonaFile(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: dict[Language, str] = {}
    system: dict[Language, str] = {}


class _PromptFile(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    budget: int | None = None
    reply_tokens: int | None = None
    max_reply_tokens: int | None = None
    layout: str | None = None
    recall_position: str | None = None


class _AssistantFile(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a TOML file may say."""

    name: str | None = None
    title: dict[Language, str] = {}
    description: dict[Language, str] = {}
    system: dict[Language, str]
    preset: str = "platform"
    sessions: JsonObject = {}
    context: JsonObject = {}
    prompt: _PromptFile = _PromptFile()
    model: str | None = None
    tools: tuple[str, ...] = ()
    run_first: tuple[str, ...] = ()
    personas: dict[str, _PersonaFile] = {}
    isolated: bool = False
    relevance: float = 0.0
    privacy_also: tuple[str, ...] | None = None


def load_folder(folder: Path) -> tuple[Assistant, ...]:
    """The assistants of a folder, by file name. One whose file cannot be loaded has its cause as `missing`.

    Raises:
        InvalidSetting: there is no such folder.
    """
    if not folder.is_dir():
        raise InvalidSetting(_SETTING, f"there is no folder {folder}")
    loaded = [_load_file(path) for path in sorted(folder.iterdir()) if _is_assistant_file(path, folder)]
    return tuple(loaded)


def missing_of(file: str, error: InvalidSetting) -> Missing:
    """Why the assistant of a file takes no turns, and what to do."""
    cause = str(error).removeprefix(f"{_SETTING}: ") if error.setting == _SETTING else f"{file}: {error}"
    advice = "set what it names, or correct the file" if error.setting == "model" else "correct the file"
    if isinstance(error, PackageMissing):
        cause, advice = cause.removesuffix(f": {error.install}"), error.install
    return Missing(cause=cause, advice=f"{advice}, then start again")


def _is_assistant_file(path: Path, folder: Path) -> bool:
    """Whether the file is an assistant: a Python file beside a TOML file of its name holds that one's tools."""
    if path.name.startswith(("_", ".")):
        return False
    return path.suffix == ".toml" or (path.suffix == ".py" and not (folder / f"{path.stem}.toml").exists())


def _load_file(path: Path) -> Assistant:
    try:
        assistant = _from_toml(path) if path.suffix == ".toml" else _from_python(path)
        return dataclasses.replace(assistant, file=path.name)
    except Exception as error:
        why = error if isinstance(error, InvalidSetting) else loading_error(_SETTING, path, error)
        return Assistant(name=_name_in(path) or path.stem, file=path.name, missing=missing_of(path.name, why))


def _name_in(path: Path) -> str | None:
    """The name that a TOML file gives its assistant, if that much of it can be read."""
    try:
        name = tomllib.loads(path.read_text(encoding="utf-8")).get("name") if path.suffix == ".toml" else None
    except (OSError, ValueError):
        return None
    return name if isinstance(name, str) else None


def _from_toml(path: Path) -> Assistant:
    given = _read_toml(path)
    character = {name: Persona(id=name, names=one.name, system=one.system) for name, one in given.personas.items()}
    return Assistant(
        name=given.name or path.stem,
        titles=given.title,
        description=given.description,
        system=given.system,
        policies=_policies(path, given),
        prompt=_prompt(path, given.prompt),
        model=given.model,
        tools=tuple(_tools(path, given.tools)),
        run_first=given.run_first,
        personas=character,
        isolated=given.isolated,
        relevance=given.relevance,
    )


def _read_toml(path: Path) -> _AssistantFile:
    try:
        given = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        raise _invalid_file(path, "cannot be read") from None
    except tomllib.TOMLDecodeError as error:
        raise _invalid_file(path, f"is not TOML: {error}") from None
    _check_known_fields(path, given, _AssistantFile.__struct_fields__)
    try:
        return msgspec.convert(given, _AssistantFile)
    except msgspec.ValidationError as error:
        raise _invalid_file(path, str(error)) from None


def _policies(path: Path, given: _AssistantFile) -> Preset:
    """The preset, with what the file says on top of it."""
    base = preset(given.preset)
    sessions = _override_policy(path, base.sessions, given.sessions)
    also = base.privacy_also if given.privacy_also is None else given.privacy_also
    context = _override_policy(path, base.context, given.context)
    return replace(base, sessions=sessions, context=context, privacy_also=also)


def _prompt(path: Path, section: _PromptFile) -> PromptPolicy:
    given = {name: value for name in section.__struct_fields__ if (value := getattr(section, name)) is not None}
    return _override_policy(path, PromptPolicy(), given)


def _override_policy(path: Path, base: _Policy, given: Mapping[str, Any]) -> _Policy:
    """A policy with some fields changed, checked as settings are."""
    kind = type(base)
    try:
        return msgspec.convert(_with_fields(path, base, given), kind, strict=False)
    except msgspec.ValidationError as error:
        raise _invalid_file(path, str(error)) from None


def _with_fields(path: Path, base: Value, given: Mapping[str, Any]) -> JsonObject:
    """The fields of a policy, with those of the file in place of some; parts of a policy likewise."""
    _check_known_fields(path, given, base.__struct_fields__)
    parts = {name: part for name in given if isinstance(part := getattr(base, name), Value)}
    for name, part in parts.items():
        if not isinstance(given[name], Mapping):
            raise _invalid_file(path, f"{name} has fields of its own: {', '.join(part.__struct_fields__)}")
    merged = {name: _with_fields(path, part, given[name]) for name, part in parts.items()}
    return {**msgspec.to_builtins(base, builtin_types=()), **given, **merged}


def _check_known_fields(path: Path, given: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]}?" if near else f"; expected one of {', '.join(known)}"
            raise _invalid_file(path, f"{name} is unknown{hint}")


def _tools(path: Path, names: tuple[str, ...]) -> Iterator[Tool]:
    beside = path.with_suffix(".py")
    module = _import_file(beside) if names and beside.exists() else None
    for name in names:
        yield _resolve_tool(path, name, module)


def _resolve_tool(path: Path, name: str, beside: ModuleType | None) -> Tool:
    """A function of the Python file beside the TOML file, or `package.module:function`."""
    where, _, function = name.rpartition(":")
    try:
        module = importlib.import_module(where) if where else beside
    except (Exception, SystemExit) as error:
        raise _invalid_file(path, f"tools: {where} cannot be imported: {describe_import_error(error)}") from None
    found = getattr(module, function, None)
    if not callable(found):
        raise _invalid_file(path, f"tools: there is no function {function} in {where or path.with_suffix('.py').name}")
    return make_tool(found)


def _from_python(path: Path) -> Assistant:
    make = getattr(_import_file(path), "assistant", None)
    if not callable(make):
        raise _invalid_file(path, "defines no function assistant()")
    try:
        made = make()
    except InvalidSetting:
        raise
    except (Exception, SystemExit) as error:
        raise loading_error(_SETTING, path, error, what="assistant()") from None
    if not isinstance(made, Assistant):
        raise _invalid_file(path, "assistant() returns no Assistant")
    for name, kind in _KINDS.items():
        if not isinstance(getattr(made, name), kind):
            raise _invalid_file(path, f"assistant() returns an Assistant whose {name} is not a {kind.__name__}")
    return made


def _import_file(path: Path) -> ModuleType:
    """The Python file, run once under a name of its own."""
    name = f"tenuto_own_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    # A script that ends itself must not end the server.
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise loading_error(_SETTING, path, error, when="when it is read") from None
    return module


def _invalid_file(path: Path, why: str) -> InvalidSetting:
    return InvalidSetting(_SETTING, f"{path.name}: {why}")
