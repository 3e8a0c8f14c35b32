"""Plugins: installed ones, offered ones, and the way from one to the other."""
