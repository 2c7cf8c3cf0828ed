"""What a policy calls private: our rules, own patterns, what is allowed, and detectors outside."""
