"""Queries over agent, tool and plugin definitions, their registries, caches and forks."""
