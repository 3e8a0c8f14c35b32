"""The deploy engine: one versioned set of instructions, skills and prompts, for many tools."""
