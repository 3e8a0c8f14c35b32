"""Command-line front ends, one file per domain; the service does the work."""
