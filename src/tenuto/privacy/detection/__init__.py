"""Detection by policy: built-in rules, custom patterns, the allow-list, and external detectors."""
