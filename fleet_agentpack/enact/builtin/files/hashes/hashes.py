"""Hashes the files of a tree; arguments come as JSON on standard input."""

import fnmatch
import hashlib
import json
import os
import sys


def main():
    arguments = json.load(sys.stdin)
    root, algorithm = arguments["path"], arguments.get("algorithm", "sha256")
    pattern, limit = arguments.get("pattern", "*"), arguments.get("limit", 1000)
    tree = hashlib.new(algorithm)
    listed, skipped, same, total, count = [], [], {}, 0, 0
    for name, path in files(root):
        if not fnmatch.fnmatch(os.path.basename(path), pattern):
            continue
        try:
            digest, size = hash_of(path, algorithm)
        except OSError as error:
            skipped.append(f"{name}: {error.strerror}")
            continue
        count, total = count + 1, total + size
        tree.update(f"{digest} {name}\n".encode("utf-8", "surrogateescape"))
        same.setdefault((digest, size), []).append(name)
        if len(listed) < limit:
            listed.append({"path": name, "hash": digest, "size": size})
    result = {
        "tree": tree.hexdigest(),
        "algorithm": algorithm,
        "count": count,
        "bytes": total,
        "files": listed,
        "duplicates": [names for names in same.values() if len(names) > 1],
        "skipped": skipped,
    }
    print(json.dumps(result))


def files(root):
    if os.path.isfile(root):
        yield os.path.basename(root), root
        return
    for folder, folders, names in os.walk(root):
        folders.sort()
        for name in sorted(names):
            path = os.path.join(folder, name)
            if os.path.isfile(path) and not os.path.islink(path):
                yield os.path.relpath(path, root).replace(os.sep, "/"), path


def hash_of(path, algorithm):
    with open(path, "rb") as stream:
        digest = hashlib.file_digest(stream, algorithm).hexdigest()
        return digest, stream.tell()


main()
