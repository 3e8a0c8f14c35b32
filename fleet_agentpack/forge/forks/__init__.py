"""Forks: compared with their upstream and merged with it."""
