"""Where tools come from: the built-in registry, a directory, or a registry behind HTTP."""
