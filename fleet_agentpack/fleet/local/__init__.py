"""This machine as the fleet's engine: a worktree per agent, a detached process per task."""
