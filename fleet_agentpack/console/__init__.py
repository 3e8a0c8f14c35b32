"""The terminal: one way to declare a command, print, ask and report progress."""
