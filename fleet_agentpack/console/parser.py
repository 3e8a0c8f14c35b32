"""How commands read their arguments: a near miss gets the right word, help ends with an example."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NoReturn

LEAF = "_leaf"  # in the parsed arguments: the parser of the subcommand that was chosen
MISTAKEN = 2
LEADING = "--project"  # the program's own option that counts for commands, too


class Parser(argparse.ArgumentParser):
    """The arguments of a command; its subcommands are parsers of this class, too."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(
            *args, **{"formatter_class": argparse.RawDescriptionHelpFormatter, **options}
        )
        self.set_defaults(**{LEAF: self})
        self.example = ""  # arguments that make sense

    def shown_example(self) -> str:
        """Its example; that of the first subcommand where it has none of its own."""
        first = next(self.subcommands(), None)
        if self.example or first is None:
            return self.example
        name, parser = first
        return f"{name} {parser.shown_example()}".strip()

    def subcommands(self) -> Iterator[tuple[str, Parser]]:
        """Its subcommands by name."""
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                yield from action.choices.items()

    def options(self) -> Iterator[argparse.Action]:
        """Its options, without those that help does not show."""
        return (
            action
            for action in self._actions
            if action.option_strings and action.help != argparse.SUPPRESS
        )

    def positionals(self) -> Iterator[argparse.Action]:
        """Its arguments that are no options, without subcommands."""
        return (
            action
            for action in self._actions
            if not action.option_strings
            and action.help != argparse.SUPPRESS
            and not isinstance(action, argparse._SubParsersAction)
        )

    def format_help(self) -> str:
        """The help text, with an example at its end."""
        self.epilog = self.epilog or f"example:\n  {self.prog} {self.shown_example()}".rstrip()
        return super().format_help()

    def parse_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> argparse.Namespace:
        """The arguments; a word that does not belong there is a mistake."""
        found, rest = self.parse_known_args(args, namespace)
        if rest:
            leaf: Parser = getattr(found, LEAF)
            leaf.refuse_unknown(rest)
        return found

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """The arguments, and what is left; a near miss of an option is told before what it lacks.

        Without that, `--too ID` for `--to ID` would be told that `--to` is missing.
        """
        if self._takes_all_words_itself:
            for word in _before_the_end(args or ()):
                if self._near_miss(word):
                    self.refuse_unknown([word])
        return super().parse_known_args(args, namespace)

    def refuse_unknown(self, words: Sequence[str]) -> NoReturn:
        """End the program over words that mean nothing here."""
        if any(word.split("=", 1)[0] == LEADING for word in words):
            program, _, command = self.prog.partition(" ")
            self.error(f"{LEADING} goes before the command: {program} {LEADING} DIR {command}")
        near = [hint for word in words if (hint := self._near_miss(word))]
        told = f"unrecognized arguments: {' '.join(words)}"
        self.error(told + (did_you_mean(near) if near else ""))

    def error(self, message: str) -> NoReturn:
        """End the program over a mistake: what is wrong, and where to read on."""
        text = f"{self.prog}: {message}\n  {self.prog} --help shows how to use it\n"
        self.exit(MISTAKEN, text)

    def _near_miss(self, word: str) -> str | None:
        """The option that a word looks like, if it is none itself, nor the beginning of one."""
        name = word.split("=", 1)[0]
        known = [each for each in self._option_string_actions if each.startswith("--")]
        known.append(LEADING)
        if not name.startswith("--") or any(each.startswith(name) for each in known):
            return None
        return next(iter(near_misses(name, known)), None)

    @property
    def _takes_all_words_itself(self) -> bool:
        passed_on = (argparse.PARSER, argparse.REMAINDER)
        return not any(action.nargs in passed_on for action in self._actions)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        known = [str(each) for each in action.choices]
        near = near_misses(str(value), known)
        hint = did_you_mean(near) if near else f"; choose from {', '.join(known)}"
        if isinstance(action, argparse._SubParsersAction):
            self.error(f"unknown command {str(value)!r}{hint}")
        raise argparse.ArgumentError(action, f"invalid choice: {str(value)!r}{hint}")


def near_misses(word: str, known: Sequence[str]) -> list[str]:
    """The known word that this one is most like, if it is like any."""
    import difflib  # here, since a server needs none of it

    return difflib.get_close_matches(word, known, n=1)


def did_you_mean(words: Iterable[str]) -> str:
    """The end of a message about a word that was mistyped."""
    return f"; did you mean {' or '.join(words)}?"


def _before_the_end(words: Sequence[str]) -> Iterator[str]:
    """The words up to `--`, after which nothing is an option."""
    for word in words:
        if word == "--":
            return
        yield word
