"""Engines that run the plans of tasks; each imports its library itself."""
