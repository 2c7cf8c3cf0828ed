"""The way of a message from a chat platform to its turn, and of the answer back."""
