"""Brings edits of deployed files back into the pack."""
