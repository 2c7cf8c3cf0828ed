"""Where models are, and whether they take connections, found out without a request, which could cost something."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Container, Iterable
from typing import Final
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from tenuto.llm.factory import check_address, model_names, provider_of
from tenuto.model.urls import is_loopback

LOCAL: Final = {"ollama": "http://localhost:11434/v1", "vllm": "http://localhost:8000/v1"}
"""Where a provider listens when nothing says otherwise."""
# The variables in which the providers' clients look for an address.
_VARIABLES: Final = {
    "ollama": "OLLAMA_BASE_URL",
    "vllm": "VLLM_BASE_URL",
    "openai": "OPENAI_BASE_URL",
    "openai-chat": "OPENAI_BASE_URL",
    "openai-responses": "OPENAI_BASE_URL",
    "anthropic": "ANTHROPIC_BASE_URL",
}
_TIMEOUT_SECONDS: Final = 2
_PORTS: Final = {"http": 80, "https": 443}


def model_addresses(chains: Iterable[str], *, home: str, base_url: str | None) -> list[str]:
    """The addresses of the models that these chains name, as far as they are set or local.

    `base_url` is that of the provider `home`.

    Raises:
        InvalidSetting: one of them is no address.
    """
    return list(address_variables(chains, home=home, base_url=base_url))


def address_variables(chains: Iterable[str], *, home: str, base_url: str | None) -> dict[str, str]:
    """As `model_addresses`, with the variable that sets each address, or that could where it is the usual one.

    Raises:
        InvalidSetting: one of them is no address.
    """
    found: dict[str, str] = {}
    for provider in (provider_of(name) for chain in chains for name in model_names(chain)):
        variable = _VARIABLES.get(provider, "")
        if provider == home and base_url is not None:
            found[check_address("model_base_url", base_url)] = "TENUTO_MODEL_BASE_URL"
        elif address := os.environ.get(variable):
            found[check_address(variable, address)] = variable
        elif provider in LOCAL:
            found[LOCAL[provider]] = variable
    return found


def names_local_model(chain: str, base_url: str | None, given: Container[str] = ()) -> bool:
    """Whether a model of a chain is on this machine; those in `given` are a program's own."""
    if chain in given:
        return False
    addresses = model_addresses([chain], home=provider_of(chain), base_url=base_url)
    return any(is_loopback(urlsplit(address).hostname or "") for address in addresses)


async def why_unreachable(base_url: str) -> str | None:
    """Why no connection can be made, with host and port and nothing else of the address; `None` where one can.

    Behind a proxy only a request could tell, so that counts as reachable.
    """
    parts = urlsplit(base_url)
    host = parts.hostname or ""
    port = parts.port or _PORTS.get(parts.scheme, 443)
    if parts.scheme in getproxies() and not proxy_bypass(host):
        return None
    try:
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            _, writer = await asyncio.open_connection(host, port)
    except TimeoutError:
        return f"{host}:{port} did not answer within {_TIMEOUT_SECONDS} s"
    except OSError as error:
        # The text of a refused call repeats the address; that of an unknown name is all there is; a host with several
        # addresses that fail has neither.
        code = error.errno or 0
        why = os.strerror(code) if code > 0 else error.strerror
        return f"{host}:{port} cannot be reached" + (f" ({why})" if why else "")
    writer.close()
    return None
