"""The configuration: its files, their shape, and how it is shown."""
