"""Describes the columns of a CSV file; arguments come as JSON on standard input."""

import csv
import json
import math
import statistics
import sys
from collections import Counter

FREQUENT = 5


def main():
    arguments = json.load(sys.stdin)
    csv.field_size_limit(16 * 1024 * 1024)
    with open(arguments["file"], encoding="utf-8-sig", errors="replace", newline="") as stream:
        delimiter = arguments.get("delimiter") or sniff(stream)
        reader = csv.reader(stream, delimiter=delimiter)
        header = next(reader, [])
        if not header:
            sys.exit("the file has no header line")
        cells = [[] for _ in header]
        rows = 0
        for row in reader:
            if not row:
                continue
            rows += 1
            for index, column in enumerate(cells):
                column.append(row[index].strip() if index < len(row) else "")
    wanted = arguments.get("columns")
    unknown = sorted(set(wanted or ()) - set(header))
    if unknown:
        sys.exit(f"no such column: {', '.join(unknown)}; the file has {', '.join(header)}")
    columns = [
        describe(name, column)
        for name, column in zip(header, cells)
        if not wanted or name in wanted
    ]
    print(json.dumps({"rows": rows, "delimiter": delimiter, "columns": columns}, ensure_ascii=False))


def sniff(stream):
    first = stream.readline()
    stream.seek(0)
    counts = {mark: first.count(mark) for mark in (",", ";", "\t", "|")}
    best = max(counts, key=counts.get)
    return best if counts[best] else ","


def describe(name, cells):
    filled = [cell for cell in cells if cell]
    numbers = [number for number in map(number_of, filled) if number is not None]
    kind = "empty" if not filled else "number" if len(numbers) == len(filled) else "text"
    found = {
        "name": name,
        "type": kind,
        "missing": len(cells) - len(filled),
        "distinct": len(set(filled)),
    }
    if kind == "number":
        found |= {
            "min": min(numbers),
            "max": max(numbers),
            "mean": statistics.fmean(numbers),
            "median": statistics.median(numbers),
            "stdev": statistics.stdev(numbers) if len(numbers) > 1 else 0.0,
        }
    elif kind == "text":
        common = Counter(filled).most_common(FREQUENT)
        found["top"] = [{"value": value, "count": count} for value, count in common]
    return found


def number_of(text):
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


main()
