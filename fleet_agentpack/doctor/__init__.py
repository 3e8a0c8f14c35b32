"""`doctor --all`: what is configured, reachable, writable and installed, and what to do."""
