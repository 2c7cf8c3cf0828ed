"""The wiring beside `app`: which objects stand for the settings, one file for stores, privacy and the chat."""
