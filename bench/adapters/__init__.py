"""Adapters beside the stores that their frameworks bring, on the same backend in one run."""
