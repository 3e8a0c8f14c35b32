"""Agents and tools: found, read, resolved, validated and written."""
