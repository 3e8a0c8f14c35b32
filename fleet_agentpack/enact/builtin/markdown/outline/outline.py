"""Outlines a Markdown file; arguments come as JSON on standard input."""

import json
import re
import sys

HEADING = re.compile(r" {0,3}(#{1,6})(?:\s+(.*?))?(?:\s+#+)?\s*$")
FENCE = re.compile(r" {0,3}(`{3,}|~{3,})\s*([^\s`]*)")
LINK = re.compile(r"!?\[([^\]]*)\]\(\s*<?([^)\s>]+)>?(?:\s+[\"'][^)]*)?\)")
UNDERLINE = re.compile(r" {0,3}(=+|-+)\s*$")


def main():
    arguments = json.load(sys.stdin)
    with open(arguments["file"], encoding="utf-8-sig", errors="replace") as stream:
        lines = stream.read().splitlines()
    headings, links, blocks = [], [], []
    fence, anchors, words, previous = None, {}, 0, ""
    for number, line in numbered(lines):
        mark = FENCE.match(line)
        if fence:
            if mark and mark[1][0] == fence[0] and len(mark[1]) >= len(fence) and not mark[2]:
                blocks[-1]["end_line"], fence = number, None
            continue
        if mark:
            fence = mark[1]
            blocks.append({"language": mark[2], "line": number, "end_line": len(lines)})
            previous = ""
            continue
        words += len(line.split())
        heading = HEADING.match(line)
        under = UNDERLINE.match(line) if previous.strip() else None
        if heading:
            add(headings, anchors, len(heading[1]), heading[2] or "", number)
        elif under and not previous.lstrip().startswith(("-", "*", "+", ">", "|", "#")):
            add(headings, anchors, 1 if under[1][0] == "=" else 2, previous.strip(), number - 1)
        links += [
            {"text": text, "target": target, "line": number}
            for text, target in LINK.findall(re.sub(r"`[^`]*`", "", line))
        ]
        previous = "" if heading or under else line
    depth = arguments.get("depth", 6)
    result = {
        "title": next((each["text"] for each in headings if each["level"] == 1), None),
        "words": words,
        "headings": [each for each in headings if each["level"] <= depth],
        "links": links,
        "code_blocks": blocks,
    }
    print(json.dumps(result, ensure_ascii=False))


def numbered(lines):
    start = 0
    if lines and lines[0].strip() == "---":
        ends = [index for index, line in enumerate(lines[1:], 1) if line.strip() == "---"]
        start = ends[0] + 1 if ends else 0
    return [(index + 1, line) for index, line in enumerate(lines) if index >= start]


def add(headings, anchors, level, text, line):
    plain = re.sub(r"[`*]|!?\[([^\]]*)\]\([^)]*\)", lambda match: match[1] or "", text).strip()
    slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
    anchors[slug] = anchors.get(slug, -1) + 1
    anchor = f"{slug}-{anchors[slug]}" if anchors[slug] else slug
    headings.append({"level": level, "text": plain, "line": line, "anchor": anchor})


main()
