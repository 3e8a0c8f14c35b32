"""Brings configuration that is already there into a pack."""
