"""Where tools run: a sandbox, a container, Dagger, or this machine itself."""
