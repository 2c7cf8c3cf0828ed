"""The detector: rules that find private data in a text. Pure: no I/O, no clock, no network."""
