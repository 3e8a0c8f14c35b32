"""This machine as the fleet's engine: one worktree per agent, one detached process per task."""
