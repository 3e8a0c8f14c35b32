"""Which account a GitHub login belonged to when it was first trusted: a login can be given away."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from fleet_agentpack.enact.trust.identity import Signer
from fleet_agentpack.enact.trust.state_file import StateFile


class KnownAccounts:
    """The number of each login's account, as its certificates have it; kept at first use."""

    def __init__(self, path: Path) -> None:
        self._file = StateFile(path)

    def other(self, signer: Signer) -> str | None:
        """The account that this signer's login belonged to, if it was another one."""
        if not signer.account:
            return None
        known = self._file.read().get(signer.party)
        return None if known in (None, signer.account) else str(known)

    def remember(self, signers: Iterable[Signer]) -> None:
        """Keep the accounts of signers that were accepted."""
        seen = {each.party: each.account for each in signers if each.account}
        if seen.keys() - self._file.read().keys():
            self._file.change(lambda known: {**seen, **known})
