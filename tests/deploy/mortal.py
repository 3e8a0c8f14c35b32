"""The engine's disk, when it dies, fills up or refuses at its n-th step."""

from __future__ import annotations

from fleet_agentpack.deploy.disk import Disk
from fleet_agentpack.deploy.hashes import HashCache
from tests.kit.mortal import Counting, Failing, Mortal, in_child

__all__ = ["CountingDisk", "FailingDisk", "MortalDisk", "in_child"]


class CountingDisk(Counting, Disk):
    """Counts its steps."""


class MortalDisk(Mortal, Disk):
    """The process is killed before a step."""

    def __init__(self, hashes: HashCache, fatal: int, *, halfway: bool = False) -> None:
        super().__init__(hashes)
        self.fatal = fatal
        self.halfway = halfway


class FailingDisk(Failing, Disk):
    """A step fails: once, or from then on whatever needs space."""

    def __init__(self, hashes: HashCache, number: int, code: int, *, lasting: bool = False) -> None:
        super().__init__(hashes)
        self.number = number
        self.code = code
        self.lasting = lasting
