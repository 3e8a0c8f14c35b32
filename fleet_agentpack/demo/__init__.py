"""A story through all five domains, played against the real server in a scratch home."""
