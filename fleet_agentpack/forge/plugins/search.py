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
    kept: dict[str, tuple[Offer, tuple[int, int, int, str]]] = {}
    for offer in offers:
        ranks = [_rank(offer, word) for word in phrase.split()]
        if all(ranks) and (not wanted or wanted & {tag.lower() for tag in offer.tags}):
            place = order[offer.registry.name]
            score = (-_rank(offer, phrase), -sum(ranks), place, offer.name)
            kept.setdefault(offer.name, (offer, score))
    return [offer for offer, _ in sorted(kept.values(), key=lambda pair: pair[1])]


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
