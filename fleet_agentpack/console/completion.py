"""Completion scripts for bash, zsh and fish, made from the commands' own parsers."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from fleet_agentpack.console.parser import Parser


@dataclass(frozen=True)
class Place:
    """How far a command line has come: the commands typed so far, and what may follow."""

    path: tuple[str, ...]
    words: Mapping[str, str]  # commands, options and values, each with its line of help
    values: Mapping[str, Sequence[str]]  # what may follow an option; nothing to choose: a file

    @property
    def key(self) -> str:
        """The path as the scripts keep it: each command after a space."""
        return "".join(f" {word}" for word in self.path)


def places(parser: Parser, commands: Mapping[str, str], path: tuple[str, ...]) -> Iterator[Place]:
    """A parser's place, with more commands if it does not know them itself, and those below it."""
    below = dict(parser.subcommands())
    words = {**commands, **{name: each.description or "" for name, each in below.items()}}
    for action in parser.positionals():
        words |= dict.fromkeys(map(str, action.choices or ()), "")
    for action in parser.options():
        words |= dict.fromkeys(action.option_strings, (action.help or "").replace("%%", "%"))
    values = {
        option: tuple(map(str, action.choices or ()))
        for action in parser.options()
        if action.nargs != 0
        for option in action.option_strings
    }
    yield Place(path, words, values)
    for name, each in below.items():
        yield from places(each, {}, (*path, name))


def script(shell: str, prog: str, found: Sequence[Place]) -> str:
    """The script for one of `SHELLS`; the shell runs it at its start."""
    return SHELLS[shell](prog, found)


def _bash(prog: str, found: Sequence[Place]) -> str:
    return f"""\
# bash completion for {prog}; put it into ~/.bashrc:
#   eval "$({prog} completion bash)"
_{_name(prog)}() {{
  local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD-1]}} at="" words="" i
  for ((i = 1; i < COMP_CWORD; i++)); do
    case "$at|${{COMP_WORDS[i-1]}}" in
      {"|".join(_options_with_values(found))}) continue ;;
    esac
    case "$at ${{COMP_WORDS[i]}}" in
      {_paths(found)}) at="$at ${{COMP_WORDS[i]}}" ;;
    esac
  done
  case "$at|$prev" in
{_cases(_after_options(found, _bash_reply, "return"))}
  esac
  case "$at" in
{_cases((shlex.quote(each.key), f'words="{" ".join(each.words)}"') for each in found)}
  esac
  COMPREPLY=($(compgen -W "$words" -- "$cur"))
}}
complete -o default -F _{_name(prog)} {prog}
"""


def _bash_reply(chosen: Sequence[str]) -> str:
    return f'COMPREPLY=($(compgen -W "{" ".join(chosen)}" -- "$cur")); return'


def _zsh(prog: str, found: Sequence[Place]) -> str:
    return f"""\
#compdef {prog}
# zsh completion for {prog}; put it into ~/.zshrc, after compinit:
#   eval "$({prog} completion zsh)"
_{_name(prog)}() {{
  local at="" word before=""
  local -a found
  for word in "${{(@)words[2,CURRENT-1]}}"; do
    case "$at|$before" in
      ({"|".join(_options_with_values(found))}) ;;
      (*)
        case "$at $word" in
          ({_paths(found)}) at="$at $word" ;;
        esac ;;
    esac
    before=$word
  done
  case "$at|$words[CURRENT-1]" in
{_cases(_after_options(found, _zsh_reply, "_files; return"))}
  esac
  case "$at" in
{_cases((shlex.quote(each.key), f"found=({_zsh_words(each)})") for each in found)}
  esac
  _describe {shlex.quote(prog)} found || _files
}}
compdef _{_name(prog)} {prog}
"""


def _zsh_reply(chosen: Sequence[str]) -> str:
    return f"compadd -- {' '.join(chosen)}; return"


def _zsh_words(place: Place) -> str:
    shown = (f"{word}:{text}" if text else word for word, text in place.words.items())
    return " ".join(shlex.quote(each) for each in shown)


def _fish(prog: str, found: Sequence[Place]) -> str:
    name = _name(prog)
    known = " ".join(shlex.quote(each.key) for each in found if each.path)
    valued = " ".join(_options_with_values(found))
    rows = []
    for place in found:
        here = f"complete -c {prog} -n {shlex.quote(f'__{name}_at {shlex.quote(place.key)}')}"
        for word, text in place.words.items():
            shown = f" -d {shlex.quote(text)}" if text else ""
            if not word.startswith("-"):
                rows.append(f"{here} -f -a {shlex.quote(word)}{shown}")
                continue
            kind = "-l" if word.startswith("--") else "-s"
            chosen = place.values.get(word)
            takes = "" if chosen is None else f" -x -a {shlex.quote(' '.join(chosen))}"
            takes = " -r" if chosen == () else takes
            rows.append(f"{here} {kind} {word.lstrip('-')}{takes}{shown}")
    return f"""\
# fish completion for {prog}; put it into ~/.config/fish/config.fish:
#   {prog} completion fish | source
function __{name}_at
  set -l at ""
  set -l before ""
  for word in (commandline -opc)[2..-1]
    if contains -- "$at $word" {known}; and not contains -- "$at|$before" {valued}
      set at "$at $word"
    end
    set before $word
  end
  test "$at" = "$argv[1]"
end
{chr(10).join(rows)}
"""


def _name(prog: str) -> str:
    return prog.replace("-", "_")


def _paths(found: Sequence[Place]) -> str:
    return "|".join(shlex.quote(each.key) for each in found if each.path)


def _options_with_values(found: Sequence[Place]) -> list[str]:
    """The options that take a value, each at its place; what follows them is no command."""
    return [shlex.quote(f"{place.key}|{option}") for place in found for option in place.values]


def _after_options(
    found: Sequence[Place], reply: Callable[[Sequence[str]], str], otherwise: str
) -> Iterator[tuple[str, str]]:
    """What to do after an option: offer its values, where it has any to choose from."""
    free = []
    for place in found:
        for option, chosen in place.values.items():
            after = shlex.quote(f"{place.key}|{option}")
            if chosen:
                yield after, reply(chosen)
            else:
                free.append(after)
    yield "|".join(free), otherwise


def _cases(rows: Iterator[tuple[str, str]]) -> str:
    return "\n".join(f"    ({pattern}) {action} ;;" for pattern, action in rows)


SHELLS: dict[str, Callable[[str, Sequence[Place]], str]] = {
    "bash": _bash,
    "zsh": _zsh,
    "fish": _fish,
}
