"""Chat platforms: what they deliver, verified and parsed, and the replies to it."""
