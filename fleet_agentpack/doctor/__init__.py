"""One look at every domain: what is configured, reachable, writable, installed, and what to do."""
