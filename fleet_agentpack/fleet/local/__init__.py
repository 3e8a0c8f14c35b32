"""This machine as the fleet's engine: one repository per agent, one detached process per task."""
