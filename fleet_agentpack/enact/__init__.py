"""The tool registry: find, read about, install and run tools under a trust policy."""
