"""The editor of TOML changes its own table and keeps all other lines."""

from __future__ import annotations

import tomllib

import pytest

from fleet_agentpack.kit.keyed_edit import FormatError, toml

KEYS = ("mcp_servers", "agentpack")
ENTRY = {"command": "/opt/fleet-agentpack", "args": ["--only", "fleet"]}
BLOCK = """\
[mcp_servers.agentpack]
command = "/opt/fleet-agentpack"
args = ["--only", "fleet"]
"""
COMMENTED = """\
# my codex
model = "x"   # why: « contrast »

[mcp_servers.other]  # the first one
command = 'y'
env = { K = "v" }

[[rules]]
text = '''
[mcp_servers.agentpack] is only text here
'''
# end
"""


def test_a_table_goes_to_the_end() -> None:
    assert toml.put(COMMENTED, KEYS, ENTRY) == f"{COMMENTED}\n{BLOCK}"
    assert toml.put("", KEYS, ENTRY) == BLOCK
    assert toml.put("a = 1", KEYS, ENTRY) == f"a = 1\n\n{BLOCK}"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# only a comment\n",
        COMMENTED.replace("[mcp_servers.agentpack] is", "[mcp] is"),
        COMMENTED.replace("[mcp_servers.agentpack] is", "[mcp] is").replace("\n", "\r\n"),
        "[mcp_servers]\n\n[mcp_servers.o]\ncommand = 'x'\n[z]\na = 1\n",
        "mcp_servers.o.command = 'x'\n",
        "[mcp_servers.o]\ncommand = 'x'\n[a]\nb = nan\n[mcp_servers.p]\ncommand = 'y'\n",
    ],
)
def test_put_and_drop_give_the_same_bytes_back(text: str) -> None:
    edited = toml.put(text, KEYS, ENTRY)
    assert tomllib.loads(edited)["mcp_servers"]["agentpack"] == ENTRY
    assert toml.drop(edited, KEYS) == text


def test_a_name_inside_a_string_is_not_a_table() -> None:
    edited = toml.put(COMMENTED, KEYS, ENTRY)
    back = toml.drop(edited, KEYS)
    assert tomllib.loads(back) == tomllib.loads(COMMENTED)
    assert back.rstrip() == COMMENTED.rstrip()


def test_tables_below_go_with_it_and_comments_after_it_stay() -> None:
    text = (
        f"a = 1\n\n{BLOCK}\n[mcp_servers.agentpack.env] # mine\nK = 'v'\n\n"
        "# about the next one\n[z]\nb = 2\n"
    )
    assert toml.drop(text, KEYS) == "a = 1\n\n# about the next one\n[z]\nb = 2\n"


def test_a_quoted_header_is_the_same_table() -> None:
    text = '[ mcp_servers . "agentpack" ]\ncommand = "x"\n[z]\n'
    assert toml.drop(text, KEYS) == "[z]\n"


def test_an_existing_table_keeps_its_comments() -> None:
    text = (
        '[mcp_servers.agentpack] # ours\ncommand = "/old" # moved\nurl = "http://x"\n'
        'args = []\nenv = { K = "v" } # mine\n\n[z]\na = 1\n'
    )
    edited = toml.put(text, KEYS, {"env": {"K": "v"}, "command": "/new", "args": ["b"]})
    expected = text.replace("/old", "/new").replace("[]", '["b"]').replace('url = "http://x"\n', "")
    assert edited == expected


@pytest.mark.parametrize(
    "text",
    [
        "mcp_servers = { o = { command = 'x' } } # c\nb = 1\n",
        "mcp_servers = { o = { command = 'x' } } # c\r\nb = 1\r\n",
        "mcp_servers = {}\n",
    ],
)
def test_inline_tables_are_edited_too(text: str) -> None:
    edited = toml.put(text, KEYS, ENTRY)
    before = tomllib.loads(text)
    servers = {**before["mcp_servers"], "agentpack": ENTRY}
    assert tomllib.loads(edited) == {**before, "mcp_servers": servers}
    assert tomllib.loads(toml.drop(edited, KEYS)) == before
    assert edited.count("\r\n") == text.count("\r\n") and edited.count("#") == text.count("#")


def test_dropping_what_is_not_there_changes_nothing() -> None:
    assert toml.drop(COMMENTED, ("mcp_servers", "none")) == COMMENTED
    assert toml.drop("", KEYS) == ""


@pytest.mark.parametrize("text", ["broken = ", "[a\n", "a = 1\na = 2\n", "mcp_servers = 1\n"])
def test_what_cannot_be_used_is_refused(text: str) -> None:
    with pytest.raises(FormatError):
        toml.put(text, KEYS, ENTRY)
