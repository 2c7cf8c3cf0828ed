"""The client of a server elsewhere: `tenuto.connect`, with the interface of an installation in this process."""

from tenuto.client.api import MemoriesApi, SessionsApi, TenutoApi
from tenuto.client.problems import AccessRefused

__all__ = ["AccessRefused", "MemoriesApi", "SessionsApi", "TenutoApi"]
