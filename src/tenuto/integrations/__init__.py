"""Adapters for other frameworks. Each needs its framework alone, and stores everything through tenuto's ports."""
