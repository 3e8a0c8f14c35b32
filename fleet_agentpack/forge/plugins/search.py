"""Ranks the plugins that registries offer against a query."""

from __future__ import annotations

from collections.abc import Sequence

from fleet_agentpack.forge.registries.client import Offer
from fleet_agentpack.kit.results import UNKNOWN


def ranked(offers: Sequence[Offer], query: str, tags: Sequence[str]) -> list[Offer]:
    """Matches by how well they match, then by registry, then by name; each name once.

    Every word of the query has to match; of several tags one is enough.
    """
    phrase, wanted = query.lower().strip(), {tag.lower() for tag in tags}
    order = {name: at for at, name in enumerate(dict.fromkeys(o.registry.name for o in offers))}
    scored: dict[str, tuple[int, int, int, str]] = {}
    kept: dict[str, Offer] = {}
    for offer in offers:
        if offer.name in kept or (wanted and not wanted & {tag.lower() for tag in offer.tags}):
            continue
        ranks = [_rank(offer, word) for word in phrase.split()]
        if all(ranks):
            whole = _rank(offer, phrase)
            scored[offer.name] = (-whole, -sum(ranks), order[offer.registry.name], offer.name)
            kept[offer.name] = offer
    return [kept[name] for name in sorted(kept, key=lambda name: scored[name])]


def _rank(offer: Offer, term: str) -> int:
    """How well one word fits: the name itself, its start, a part of it, a tag, the text, or 0."""
    name = offer.name.lower()
    short = name.rpartition("/")[2]
    if term in (name, short):
        return 5
    if name.startswith(term) or short.startswith(term):
        return 4
    if term in name:
        return 3
    if any(term == tag.lower() for tag in offer.tags):
        return 2
    text = "" if offer.description is UNKNOWN else offer.description.lower()
    return int(term in text or any(term in tag.lower() for tag in offer.tags))
