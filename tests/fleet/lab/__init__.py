"""A real Coder on this machine for live tests and recordings: server, templates, agents at work."""
