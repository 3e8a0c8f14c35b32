"""The disk in two parts: `Reader` only reads, `Disk` also writes."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence

from fleet_agentpack.deploy import reads
from fleet_agentpack.deploy.errors import DeployError, both_ways
from fleet_agentpack.deploy.hashes import HashCache, is_private, may_execute
from fleet_agentpack.deploy.model import FileState, Root
from fleet_agentpack.kit import disk
from fleet_agentpack.kit.files import hash_file
from fleet_agentpack.kit.paths import is_inside


class NotOursError(DeployError):
    """Something in a root that is not ours to touch; `warning` is for those who go on without."""

    warning: str


class WayOutError(NotOursError):
    """A link in a root that points outside it; nothing below it is ours."""

    def __init__(self, root: Root, link: str) -> None:
        self.warning = (
            f"{link} is a link that leads out of its root; what is below it is left alone"
        )
        super().__init__(
            "E_IO_INVALID_PATH",
            f"{link} is a symbolic link that points outside {root.dir}",
            hint="remove the link, or configure the target with the directory it points to",
            **both_ways(path=link),
        )


class InTheWayError(NotOursError):
    """A directory or special file in a file's place, or a file in a directory's."""

    def __init__(self, reason: str, path: str, message: str) -> None:
        self.warning = f"{message}; it is left alone"
        super().__init__(
            "E_UNEXPECTED", message, reason=reason, hint="move it away", **both_ways(path=path)
        )


class Reader:
    """Looks at files; cannot change any."""

    def __init__(self, hashes: HashCache) -> None:
        self._hashes = hashes
        self._looked_at: list[Mapping[str, object]] = []
        self.links: dict[str, str] = {}  # links in the place of files, also those to nowhere
        self.directories: dict[str, os.stat_result] = {}  # the real ones below roots, as seen here

    @property
    def looked_at(self) -> set[str]:
        """Every path that was looked at."""
        return set().union(*self._looked_at)

    def state(self, path: str) -> FileState | None:
        """The state of the file at a path, with links followed. Raises `DeployError`."""
        return self.states([path])[path]

    def states(self, paths: Sequence[str], top: str = "") -> dict[str, FileState | None]:
        """The states of many paths, all below a directory if one is named. Raises `DeployError`."""
        reads.files(paths)
        found: dict[str, FileState | None] = dict(self._hashes.unchanged(paths, top))
        look = self._hashes.look
        for path in paths if len(found) < len(paths) else ():
            if path in found:
                continue
            try:
                found[path] = look(path)
            except FileNotFoundError:
                found[path] = None
            except OSError as error:
                found[path] = self._after_error(path, error)
        self._looked_at.append(found)
        return found

    def _after_error(self, path: str, error: OSError) -> FileState | None:
        """The state of a path that could not be opened as a regular file."""
        try:
            if stat.S_ISREG(os.lstat(path).st_mode):
                raise DeployError.io(path, error, "read") from error
            return self._unusual(path)
        except FileNotFoundError:
            return None
        except OSError as again:
            raise DeployError.io(path, again, "read") from again

    def _unusual(self, path: str) -> FileState | None:
        """The state of something that is not a regular file: a link is followed."""
        reads.at(path)
        if os.path.islink(path):
            self.links[path] = os.readlink(path)
            status = os.stat(path)  # a link that leads nowhere counts as absent
            if stat.S_ISREG(status.st_mode):
                sha256, mode = hash_file(path, status.st_size), status.st_mode
                return FileState(sha256, may_execute(mode), is_private(mode), link=self.links[path])
        raise _in_the_way(path)

    def directory(self, root: Root, path: str, known: dict[str, bool]) -> bool:
        """Whether a directory below a root exists; refuses links that point outside the root."""
        exists = known.get(path)
        if exists is not None:
            return exists
        if len(path) <= len(root.dir):
            (reads.into if root.scan_extras else reads.at)(root.dir)
            exists = _is_directory(root.dir)
        else:
            above = path.rpartition("/")[0] or "/"
            is_below = known[above] if above in known else self.directory(root, above, known)
            exists = is_below and self._is_own_directory(root, path)
        known[path] = exists
        return exists

    def _is_own_directory(self, root: Root, path: str) -> bool:
        """Whether a directory exists and really is inside its root."""
        reads.into(path)
        try:
            found = os.lstat(path)
            if stat.S_ISDIR(found.st_mode):
                self.directories[path] = found
                return True
            if stat.S_ISLNK(found.st_mode) and not is_inside(path, root.dir):
                raise WayOutError(root, path)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise DeployError.io(path, error, "read") from error
        return _is_directory(path)


class Disk(Reader, disk.Disk):
    """Looks at files and changes them."""

    def __init__(self, hashes: HashCache, *, durable: bool = False) -> None:
        Reader.__init__(self, hashes)
        disk.Disk.__init__(self, durable=durable)


def find(path: str) -> disk.State | None:
    """The file or link at a path, read afresh; None when there is nothing. Raises `DeployError`."""
    try:
        found = disk.find(path)
    except OSError as error:
        raise DeployError.io(path, error, "read") from error
    if found is not None and found.kind not in ("file", "link"):
        raise _in_the_way(path)
    return found


def _is_directory(path: str) -> bool:
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return False
    except OSError as error:
        raise DeployError.io(path, error, "read") from error
    if not stat.S_ISDIR(mode):
        message = f"{path} is a file where a directory is needed"
        raise InTheWayError("not_a_directory", path, message)
    return True


def _in_the_way(path: str) -> InTheWayError:
    message = f"{path} is a directory or a special file, and a file is needed there"
    return InTheWayError("not_a_file", path, message)
