"""The offline model: the default where no language model is set, and no pretence of being one."""

from tenuto.llm.offline.model import OfflineModel

__all__ = ["OfflineModel"]
