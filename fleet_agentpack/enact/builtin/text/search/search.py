"""Finds lines by a regular expression; arguments come as JSON on standard input."""

import fnmatch
import json
import os
import re
import sys

LONGEST_LINE = 500


def main():
    arguments = json.load(sys.stdin)
    try:
        wanted = re.compile(
            arguments["pattern"], re.IGNORECASE if arguments.get("ignore_case") else 0
        )
    except re.error as error:
        sys.exit(f"not a regular expression: {error}")
    around, limit = arguments.get("context", 0), arguments.get("limit", 100)
    matches, count, holding = [], 0, 0
    for name, path in files(arguments["path"], arguments.get("files", "*")):
        lines = text_lines(path)
        found = [index for index, line in enumerate(lines) if wanted.search(line)]
        count += len(found)
        holding += bool(found)
        for index in found[: max(0, limit - len(matches))]:
            match = {"path": name, "line": index + 1, "text": lines[index][:LONGEST_LINE]}
            if around:
                before, after = lines[max(0, index - around) : index], lines[index + 1 :][:around]
                match |= {"before": shortened(before), "after": shortened(after)}
            matches.append(match)
    print(json.dumps({"count": count, "files": holding, "matches": matches}, ensure_ascii=False))


def files(root, pattern):
    if os.path.isfile(root):
        yield os.path.basename(root), root
        return
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = os.path.join(folder, name)
            if fnmatch.fnmatch(name, pattern) and os.path.isfile(path):
                yield os.path.relpath(path, root).replace(os.sep, "/"), path


def text_lines(path):
    try:
        with open(path, "rb") as stream:
            content = stream.read()
    except OSError:
        return []
    if b"\0" in content[:8192]:
        return []
    return content.decode("utf-8", "replace").splitlines()


def shortened(lines):
    return [line[:LONGEST_LINE] for line in lines]


main()
