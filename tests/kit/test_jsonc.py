"""The editor of JSON with comments changes its own entry and not one byte more."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet_agentpack.kit.keyed_edit import FormatError, jsonc

KEYS = ("mcpServers", "agentpack")
ENTRY = {"command": "/opt/fleet-agentpack", "args": ["--only", "fleet"]}

COMMENTED = """\
// servers of our team
{
    "theme": "GitHub", /* why: « contrast » */
    "mcpServers": {
        // the first one
        "other": {"command": "x", "args": []}, // 日本語, \\u00e9 stays escaped
        "last": {"command": "y\\u00e9"} // no comma here
        /* the end */
    },
    "list": [1, 2.50, 1e3, true, null,],
}
"""


def test_an_entry_goes_behind_the_last_one_and_its_comments() -> None:
    edited = jsonc.put(COMMENTED, KEYS, ENTRY)
    assert edited == COMMENTED.replace('"y\\u00e9"} //', '"y\\u00e9"}, //').replace(
        "        /* the end */\n",
        """\
        /* the end */
        "agentpack": {
            "command": "/opt/fleet-agentpack",
            "args": [
                "--only",
                "fleet"
            ]
        }
""",
    )
    assert jsonc.parse(edited)["mcpServers"]["agentpack"] == ENTRY
    assert jsonc.drop(edited, KEYS) == COMMENTED


@pytest.mark.parametrize(
    "text",
    [
        COMMENTED,
        COMMENTED.replace("\n", "\r\n"),
        '{"mcpServers": {"a": {"command": "x"}}}',
        '{"mcpServers":{"a":{"command":"x"}},}',
        '{"mcpServers": {}, "z": "\\ud83d\\ude00 😀"}',
        '{\n\t"mcpServers": {\n\t\t"a": 1,\n\t}\n}',
        '{ // c\n  "mcpServers": { "a": 1, // one\n    "b": 2 }\n}'.replace(" }\n}", "\n  }\n}"),
    ],
)
def test_put_and_drop_give_the_same_bytes_back(text: str) -> None:
    edited = jsonc.put(text, KEYS, ENTRY)
    assert jsonc.parse(edited)["mcpServers"]["agentpack"] == ENTRY
    assert jsonc.drop(edited, KEYS) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", '{\n  "s": {\n    "n": {\n      "a": 1\n    }\n  }\n}\n'),
        ("{}", '{\n  "s": {\n    "n": {\n      "a": 1\n    }\n  }\n}'),
        ("{ }\n", '{\n  "s": {\n    "n": {\n      "a": 1\n    }\n  }\n}\n'),
        ("// c", '// c\n{\n  "s": {\n    "n": {\n      "a": 1\n    }\n  }\n}\n'),
        ("{ // c\n}", '{ // c\n  "s": {\n    "n": {\n      "a": 1\n    }\n  }\n}'),
        ('{"z": 1}', '{"z": 1, "s": {"n": {"a": 1}}}'),
        (
            '{\r\n "z": 1\r\n}',
            '{\r\n "z": 1,\r\n "s": {\r\n  "n": {\r\n   "a": 1\r\n  }\r\n }\r\n}',
        ),
    ],
)
def test_objects_on_the_way_are_made(text: str, expected: str) -> None:
    assert jsonc.put(text, ("s", "n"), {"a": 1}) == expected


def test_an_existing_entry_keeps_its_comments_and_its_place() -> None:
    text = """{
  "s": {
    "n": {
      // the old path
      "command": "/old", // moved in May
      "url": "http://x", /* gone? */
      "args": ["a"],
      "env": {"K": "v"} // mine
    },
    "m": 1
  }
}"""
    value = {"env": {"K": "v"}, "command": "/new", "args": ["a", "b"]}
    edited = jsonc.put(text, ("s", "n"), value)
    assert edited == text.replace("/old", "/new").replace('["a"]', '["a", "b"]').replace(
        '      "url": "http://x",', ""
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"s": {"n": 1, "b": 2}}', '{"s": { "b": 2}}'),
        ('{"s": {"a": 1, "n": 1, "b": 2}}', '{"s": {"a": 1, "b": 2}}'),
        ('{"s": {"a": 1, // why\n "n": 1 }}', '{"s": {"a": 1 // why\n }}'),
        ('{"s": {"n": 1 /* c */ , "b": 2}}', '{"s": { /* c */  "b": 2}}'),
        ('{"s": {\n  "n": 1\n}}', '{"s": {}}'),
        ('{"s": {\n  "n": 1 // mine\n}}', '{"s": { // mine\n}}'),
        ('{"s": {}}', '{"s": {}}'),
        ('{"t": 1}', '{"t": 1}'),
        ("", ""),
    ],
)
def test_only_the_entry_goes(text: str, expected: str) -> None:
    assert jsonc.drop(text, ("s", "n")) == expected
    assert "n" not in jsonc.parse(expected).get("s", {})


@pytest.mark.parametrize(
    "text",
    [
        *("{", "{broken", '{"a" 1}', '{"a": }', '{"a": 1 "b": 2}', '{"a": 1}}', "[1]", "1", "{,}"),
        *('{"a": "x\n"}', '{"a": /* 1}', "{'a': 1}", '{"a": 01}', '{"a": tru}', '{"a": "\\q"}'),
        *('{"a": [1 2]}', '{"a": [,]}', '{"a": ' + "[" * 100_000, "# no comment", '{"a": NaN}'),
    ],
)
def test_what_is_not_json_is_refused(text: str) -> None:
    with pytest.raises(FormatError):
        jsonc.parse(text)


def test_a_fault_is_named_by_line_and_column() -> None:
    with pytest.raises(FormatError, match="line 2, column 8: unexpected '}'"):
        jsonc.parse('{\n  "a": }')


@pytest.mark.parametrize("text", ['{"s": 1}', '{"s": []}', '{"s": null}', '{"s": {}, "s": {}}'])
def test_what_cannot_take_an_entry_is_refused(text: str) -> None:
    with pytest.raises(FormatError):
        jsonc.put(text, ("s", "n"), {"a": 1})


# Random documents in random clothes.

NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | NAMES
    | st.sampled_from(["//", "/* */", '"', "\\", "}", ","]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)
SERVERS = st.dictionaries(NAMES.filter(lambda name: name != "n"), VALUES, max_size=3)
DOCUMENTS = st.builds(
    lambda around, servers: {**around, **({} if servers is None else {"s": servers})},
    st.dictionaries(NAMES.filter(lambda name: name != "s"), VALUES, max_size=3),
    st.none() | SERVERS,
)
GAPS = st.sampled_from(["", " ", "\n", "\n  ", "\r\n\t", "/* , } */", '// { " ,\n', " // x\r\n "])


def dressed(draw: Any, value: Any) -> str:
    """The value as text, with white space, comments and trailing commas wherever they may be."""
    gap = lambda: draw(GAPS)  # noqa: E731
    if isinstance(value, dict):
        parts = [
            f"{gap()}{json.dumps(key, ensure_ascii=draw(st.booleans()))}{gap()}:{gap()}"
            f"{dressed(draw, item)}{gap()}"
            for key, item in value.items()
        ]
        brackets = "{}"
    elif isinstance(value, list):
        parts = [f"{gap()}{dressed(draw, item)}{gap()}" for item in value]
        brackets = "[]"
    else:
        return json.dumps(value, ensure_ascii=draw(st.booleans()))
    tail = f",{gap()}" if parts and draw(st.booleans()) else gap()
    return brackets[0] + ",".join(parts) + tail + brackets[1]


@st.composite
def texts(draw: Any) -> tuple[dict[str, Any], str]:
    value = draw(DOCUMENTS)
    return value, draw(GAPS) + dressed(draw, value) + draw(GAPS)


def bare(text: str) -> str:
    return re.sub(r"\s", "", text)


@settings(max_examples=200, deadline=None)
@given(texts(), st.sampled_from([ENTRY, {}, {"a": "é\n//"}]))
def test_any_document_keeps_everything_else(
    document: tuple[dict[str, Any], str], entry: dict[str, Any]
) -> None:
    value, text = document
    assert repr(jsonc.parse(text)) == repr(value)

    edited = jsonc.put(text, ("s", "n"), entry)
    expected = {**value, "s": {**value.get("s", {}), "n": entry}}
    assert jsonc.parse(edited) == expected
    assert jsonc.put(edited, ("s", "n"), entry) == edited

    back = jsonc.drop(edited, ("s", "n"))
    assert jsonc.parse(back) == {**value, "s": value.get("s", {})}
    if "s" in value:
        assert bare(back) == bare(text)


@settings(max_examples=200, deadline=None)
@given(texts(), st.data())
def test_any_member_can_be_dropped(document: tuple[dict[str, Any], str], data: Any) -> None:
    value, text = document
    if not value:
        return
    key = data.draw(st.sampled_from(sorted(value)))
    edited = jsonc.drop(text, [key])
    assert repr(jsonc.parse(edited)) == repr({k: v for k, v in value.items() if k != key})
