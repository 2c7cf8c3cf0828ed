"""The tests, and the real servers and the clock they run with."""
