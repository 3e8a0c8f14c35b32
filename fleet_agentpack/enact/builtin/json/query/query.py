"""Picks values out of a JSON file; arguments come as JSON on standard input."""

import json
import re
import sys

STEP = re.compile(
    r"""\.\.(?P<deep>[\w$-]+|\*)
      | \.?(?P<key>[\w$-]+)
      | \.?\[\s*(?P<index>-?\d+)\s*\]
      | \.?\[\s*(?P<quoted>"(?:[^"\\]|\\.)*")\s*\]
      | \.?(?P<every>\[\s*\*\s*\]|\*)""",
    re.VERBOSE,
)


def main():
    arguments = json.load(sys.stdin)
    document = read(arguments["file"])
    found = [("$", document)]
    for step in steps(arguments["path"].strip().removeprefix("$")):
        found = [match for place, value in found for match in advance(step, place, value)]
    limit = arguments.get("limit", 100)
    matches = [{"path": place, "value": value} for place, value in found[:limit]]
    print(json.dumps({"count": len(found), "matches": matches}, ensure_ascii=False))


def read(name):
    with open(name, encoding="utf-8-sig") as stream:
        try:
            if name.endswith((".jsonl", ".ndjson")):
                return [json.loads(line) for line in stream if line.strip()]
            return json.load(stream)
        except ValueError as error:
            sys.exit(f"{name} is not valid JSON: {error}")


def steps(path):
    position = 0
    while position < len(path):
        match = STEP.match(path, position)
        if not match:
            sys.exit(f"cannot read the path at {path[position:]!r}")
        position = match.end()
        if match["deep"]:
            yield "deep", match["deep"]
        elif match["key"]:
            yield "key", match["key"]
        elif match["index"]:
            yield "index", int(match["index"])
        elif match["quoted"]:
            yield "key", json.loads(match["quoted"])
        else:
            yield "every", None


def advance(step, place, value):
    kind, what = step
    if kind == "deep":
        for where, inner in walk(place, value):
            yield from advance(("every", None) if what == "*" else ("key", what), where, inner)
    elif kind == "every":
        yield from children(place, value)
    elif kind == "key" and isinstance(value, dict) and what in value:
        yield named(place, what), value[what]
    elif kind == "index" and isinstance(value, list) and -len(value) <= what < len(value):
        yield f"{place}[{what % len(value)}]", value[what]


def children(place, value):
    if isinstance(value, dict):
        for key, inner in value.items():
            yield named(place, key), inner
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield f"{place}[{index}]", inner


def walk(place, value):
    yield place, value
    for where, inner in children(place, value):
        yield from walk(where, inner)


def named(place, key):
    return f"{place}.{key}" if re.fullmatch(r"[\w$-]+", key) else f"{place}[{json.dumps(key)}]"


main()
