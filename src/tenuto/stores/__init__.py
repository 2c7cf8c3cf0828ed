"""Whom we talk to when something must be kept: one port, several backends, and wrappers around them."""
