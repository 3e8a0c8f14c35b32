"""Queries over agent, tool and plugin definitions, their registries, caches and forks.

The edge: `tools`, `commands`, `checks`; behind it `service`, with `results`, `errors` and `names`.
Settings: `configuration`, `setup`. Definitions: `definition`, `folders`, `index`, `resolver`,
`listing`; what is valid: `schema`, `program_rules`, `validation`. Forks: `three_way`, `forks`,
`forking`. Registries: `access`, `trees`, `catalogue`, `registries`; plugins: `packages`, `plugins`,
`installer`.
"""
