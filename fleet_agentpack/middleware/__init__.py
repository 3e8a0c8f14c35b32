"""What every tool call passes through."""
