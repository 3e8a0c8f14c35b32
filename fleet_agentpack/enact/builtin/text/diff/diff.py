"""Compares two files or directories; arguments come as JSON on standard input."""

import difflib
import json
import os
import sys


def main():
    arguments = json.load(sys.stdin)
    before, after = arguments["before"], arguments["after"]
    if os.path.isdir(before) != os.path.isdir(after):
        sys.exit("give two files or two directories, not one of each")
    if os.path.isdir(before):
        result = compare_directories(before, after, arguments.get("context", 3))
    else:
        lines = compare(before, after, os.path.basename(before), arguments.get("context", 3))
        result = {"lines": lines}
    lines = result.pop("lines")
    changed = [line for line in lines if not line.startswith(("+++", "---"))]
    differing = any(result.values())
    print(
        json.dumps(
            {
                "equal": not lines and not differing,
                "added": sum(line.startswith("+") for line in changed),
                "removed": sum(line.startswith("-") for line in changed),
                **result,
                "diff": "".join(lines),
            },
            ensure_ascii=False,
        )
    )


def compare_directories(before, after, context):
    old, new = files(before), files(after)
    lines = []
    for name in sorted(old & new):
        lines += compare(os.path.join(before, name), os.path.join(after, name), name, context)
    return {"lines": lines, "only_before": sorted(old - new), "only_after": sorted(new - old)}


def files(root):
    return {
        os.path.relpath(os.path.join(folder, name), root)
        for folder, _, names in os.walk(root)
        for name in names
        if os.path.isfile(os.path.join(folder, name))
    }


def compare(before, after, name, context):
    with open(before, "rb") as stream:
        old = stream.read()
    with open(after, "rb") as stream:
        new = stream.read()
    if old == new:
        return []
    try:
        texts = [content.decode("utf-8").splitlines(keepends=True) for content in (old, new)]
    except UnicodeDecodeError:
        return [f"Binary files a/{name} and b/{name} differ\n"]
    found = difflib.unified_diff(*texts, f"a/{name}", f"b/{name}", n=context)
    return [line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in found]


main()
