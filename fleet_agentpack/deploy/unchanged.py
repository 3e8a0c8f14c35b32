"""Gives an answer again while nothing that it was made from has changed.

For a server, which is asked again and again; a command line has one question and no use for it.
What an apply does is never taken from here: it looks at everything.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from fleet_agentpack.deploy import reads
from fleet_agentpack.kit.tree_watch import News, TreeWatch, open_tree_watch

MOST_ANSWERS = 8

T = TypeVar("T")


class Unchanged:
    """Answers with the watch that vouches for them; for one thread at a time."""

    def __init__(self, open_watch: Callable[[], TreeWatch | None] = open_tree_watch) -> None:
        self._open_watch = open_watch
        self._watch: TreeWatch | None = None
        self._given_up = False
        self._answers: dict[Hashable, Any] = {}

    @property
    def is_watching(self) -> bool:
        """Whether changes are notified here, as far as it is known."""
        return self._watch is not None

    def answer(self, question: Hashable, make: Callable[[], T]) -> T:
        """The answer as it was made last, or made now if anything may have changed since."""
        watch = self._ready()
        if watch is None:
            return make()
        if question in self._answers:
            known: T = self._answers[question]
            return known
        watch.begin()
        with reads.told_to(watch):
            answer = make()
        if self._heard_nothing(watch) and watch.is_sure():
            self._keep(question, answer)
        elif not watch.usable:
            self._give_up()
        return answer

    def close(self) -> None:
        """Let go of the watch and of every answer."""
        self._answers.clear()
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.close()

    def _ready(self) -> TreeWatch | None:
        """The watch, if there can be one; what it has heard is taken into account."""
        if self._watch is not None:
            self._heard_nothing(self._watch)
        if self._watch is None and not self._given_up:
            self._watch = self._open_watch()
            self._given_up = self._watch is None
        return self._watch

    def _heard_nothing(self, watch: TreeWatch) -> bool:
        news = watch.news()
        if news is not News.NONE:
            self._answers.clear()
        if news is News.LOST:
            self.close()
        return news is News.NONE

    def _give_up(self) -> None:
        """Too many directories, or a place without notifications: from now on, always look."""
        self.close()
        self._given_up = True

    def _keep(self, question: Hashable, answer: object) -> None:
        if len(self._answers) >= MOST_ANSWERS:
            del self._answers[next(iter(self._answers))]
        self._answers[question] = answer
