"""Coder as the fleet's engine."""
