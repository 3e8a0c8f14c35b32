"""A fleet of coding agents, in Coder workspaces or on this machine."""
