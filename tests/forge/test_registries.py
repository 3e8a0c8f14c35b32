"""Marketplaces, repositories and directories as registries, with real git."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fleet_agentpack.forge.errors import ForgeError
from fleet_agentpack.forge.installer import Installer
from fleet_agentpack.forge.names import Registry, git_url, is_ref
from fleet_agentpack.forge.service import ForgeService
from fleet_agentpack.forge.setup import RegistryAddition, add_registry
from fleet_agentpack.kit.results import UNKNOWN
from tests.forge.marketplaces import (
    REVIEWER,
    Repository,
    as_json,
    marketplace,
    plugin,
    repository,
    shop,
)
from tests.forge.registry import Site
from tests.forge.tree import plugin_manifest, write

Make = Callable[..., ForgeService]


def add(forge: ForgeService, address: str | Path, name: str = "", **more: Any) -> RegistryAddition:
    workspace = forge.workspace()
    wanted = Registry(name, str(address), 10)
    return add_registry(workspace.registries, forge.directories, wanted, **more)


def installer(forge: ForgeService) -> Installer:
    workspace = forge.workspace()
    return Installer(workspace.configuration, workspace.plugins, workspace.registries)


def install(forge: ForgeService, name: str, program: Any = "fractary", **more: Any) -> Any:
    place = forge.workspace().plugins.place("local", program)
    return installer(forge).install(name, place, **more)


def names(forge: ForgeService, query: str) -> list[str]:
    return [row.name for row in forge.plugin_search(query).results]


@pytest.fixture
def acme(tmp_path: Path) -> Repository:
    return shop(tmp_path / "acme")


@pytest.fixture
def github(tmp_path: Path, make: Make) -> ForgeService:
    """A service whose git finds GitHub below a directory of this test."""
    config = tmp_path / "gitconfig"
    config.write_text(
        f'[url "{(tmp_path / "hub").as_uri()}/"]\n  insteadOf = https://github.com/\n'
    )
    return make(GIT_CONFIG_GLOBAL=str(config))


# Adding: what was found is said, and what cannot be read is not added.


def test_owner_and_repo_are_a_repository_on_github(github: ForgeService, tmp_path: Path) -> None:
    made = shop(tmp_path / "hub/acme/tools.git")
    result = add(github, "acme/tools")
    assert (result.name, result.format, result.plugins) == ("acme-tools", "claude", 1)
    assert result.url == "https://github.com/acme/tools.git"
    assert result.commit == made.git("rev-parse", "HEAD")
    assert names(github, "review") == ["review"]


def test_a_branch_can_be_named(github: ForgeService, tmp_path: Path) -> None:
    made = shop(tmp_path / "hub/acme/tools.git")
    made.git("checkout", "-q", "-b", "next")
    made.commit({"review/.claude-plugin/plugin.json": {"name": "review", "version": "3.0.0-rc.1"}})
    made.git("checkout", "-q", "main")
    add(github, "acme/tools#next")
    assert github.plugin_search("review").results[0].version == "3.0.0-rc.1"


@pytest.mark.parametrize("form", ["directory", "marketplace.json", "file url", "bare"])
def test_a_local_marketplace_is_added_in_any_form(
    forge: ForgeService, acme: Repository, tmp_path: Path, form: str
) -> None:
    acme.git("clone", "-q", "--bare", ".", str(tmp_path / "bare.git"))
    address = {
        "directory": acme.path,
        "marketplace.json": acme.path / ".claude-plugin/marketplace.json",
        "file url": acme.url,
        "bare": tmp_path / "bare.git",
    }[form]
    result = add(forge, address)
    assert (result.name, result.format, result.plugins) == ("acme-tools", "claude", 1)
    installed = install(forge, "review").installed
    assert [(each.name, each.version) for each in installed] == [("review", "2.0.0")]


def test_a_manifest_by_url_is_looked_at_first(forge: ForgeService, site: Site, work: Path) -> None:
    url = site.put_registry(site.put_plugin(plugin_manifest("@acme/one")))
    assert add(forge, url, "shop").plugins == 1
    with pytest.raises(ForgeError, match=r"there is nothing at .* nothing was added") as caught:
        add(forge, f"{site.url}/gone.json", "gone")
    assert "connection" not in str(caught.value.suggestions)
    site.put("/page.json", b"<html>")
    with pytest.raises(ForgeError, match="not valid JSON"):
        add(forge, f"{site.url}/page.json", "page")
    names = [each["name"] for each in as_json(work / ".fractary/config.json")["registries"]]
    assert names == ["shop"]
    assert add(forge, f"{site.url}/later.json", "later", offline=True).plugins is UNKNOWN


def test_plugin_folders_without_a_catalogue_are_found(forge: ForgeService, tmp_path: Path) -> None:
    write(tmp_path / "many/plugins", {**plugin("one"), **plugin("two", None)})
    write(tmp_path, plugin("single"))
    assert add(forge, tmp_path / "many").plugins == 2
    assert add(forge, tmp_path / "single").format == "plugins"
    rows = forge.plugin_search("").results
    assert {row.name: row.version for row in rows} == {
        "one": "2.0.0",
        "two": "0.0.0",
        "single": "2.0.0",
    }


def test_a_directory_of_nothing_is_refused(forge: ForgeService, tmp_path: Path, work: Path) -> None:
    with pytest.raises(ForgeError, match="no marketplace, manifest or plugin"):
        add(forge, work)
    for address in ("nobody", "a b", "./not-there"):
        with pytest.raises(ForgeError):
            add(forge, address)
    assert not (work / ".fractary/config.json").exists()


# The source forms of a marketplace.


def test_every_source_form_is_understood_or_explained(github: ForgeService, tmp_path: Path) -> None:
    far = repository(tmp_path / "hub/acme/far.git", {**plugin("deep"), **plugin("other")})
    first = far.git("rev-parse", "HEAD")
    far.commit({"deep/.claude-plugin/plugin.json": {"name": "deep", "version": "9.0.0"}})
    url = "https://github.com/acme/far.git"
    whole = repository(
        tmp_path / "hub/acme/whole.git",
        {key.removeprefix("whole/"): value for key, value in plugin("whole").items()},
    )
    entries = [
        {"name": "near", "source": "near"},
        {"name": "gh", "source": {"source": "github", "repo": "acme/whole"}},
        {"name": "by-url", "source": {"source": "url", "url": url, "path": "other"}},
        {
            "name": "deep",
            "source": {"source": "git-subdir", "url": url, "path": "deep", "sha": first},
        },
        {
            "name": "short",
            "source": {"source": "git-subdir", "url": "acme/far", "path": "./deep", "ref": "main"},
        },
        {"name": "packed", "source": {"source": "npm", "package": "@acme/packed"}},
        {"name": "odd", "source": {"source": "carrier-pigeon"}},
    ]
    write(tmp_path / "market/plugins", plugin("near"))
    write(
        tmp_path / "market",
        {
            ".claude-plugin/marketplace.json": marketplace(
                "all-forms", *entries, metadata={"pluginRoot": "./plugins"}
            )
        },
    )
    result = add(github, tmp_path / "market")
    assert (result.plugins, result.listed) == (7, 7)
    assert "packed cannot be installed: it is the npm package" in result.warnings[0]
    assert {row.name for row in github.plugin_search("").results} == {e["name"] for e in entries}
    for name in ("near", "gh", "by-url", "deep", "short"):
        install(github, name)
    rows = {row.name: row.version for row in github.plugin_list().plugins}
    assert rows == {
        "near": "2.0.0",
        "gh": "2.0.0",
        "by-url": "2.0.0",
        "deep": "2.0.0",
        "short": "9.0.0",
    }
    for name, why in (("packed", "npm package"), ("odd", "no known kind")):
        with pytest.raises(ForgeError, match=why):
            install(github, name)
    assert whole.git("rev-parse", "HEAD")


def test_a_marketplace_by_url_alone_says_to_add_the_repository(
    forge: ForgeService, site: Site
) -> None:
    entry = {"name": "near", "source": "./near", "version": "1.0.0"}
    site.put("/marketplace.json", marketplace("by-url", entry))
    result = add(forge, f"{site.url}/marketplace.json")
    assert "add the repository instead" in result.warnings[0]
    assert forge.plugin_info("near", remote=True).version == "1.0.0"


HOSTILE: list[tuple[Any, str]] = [
    ("../../etc", "outside the marketplace"),
    ("/etc", "outside the marketplace"),
    ({"source": "url", "url": "--upload-pack=touch /tmp/x"}, "git must not fetch"),
    ({"source": "url", "url": "ext::sh -c touch% /tmp/x"}, "git must not fetch"),
    ({"source": "url", "url": "file:///etc"}, "git must not fetch"),
    ({"source": "url", "url": "ssh://-oProxyCommand=x/y"}, "git must not fetch"),
    ({"source": "url", "url": "http://elsewhere.example.test/x.git"}, "git must not fetch"),
    ({"source": "github", "repo": "acme/x", "ref": "--output=x"}, "no branch or tag"),
    ({"source": "github", "repo": "acme/x", "ref": "a..b"}, "no branch or tag"),
    ({"source": "github", "repo": "acme/x", "sha": "HEAD"}, "no commit"),
    ({"source": "git-subdir", "url": "acme/x", "path": "../up"}, "outside its repository"),
]


@pytest.mark.parametrize(("source", "why"), HOSTILE)
def test_hostile_sources_are_left_out_with_the_reason(
    forge: ForgeService, site: Site, configure: Callable[..., None], source: Any, why: str
) -> None:
    site.put("/m.json", marketplace("m", {"name": "evil", "source": source}))
    configure({"name": "m", "url": f"{site.url}/m.json"})
    warning = forge.plugin_search("evil").warnings[0]
    assert "1 of 1 entries left out: evil" in warning
    assert why in warning


def test_urls_and_refs_that_git_would_misread_are_none() -> None:
    assert git_url("owner/repo") == "https://github.com/owner/repo.git"
    assert git_url("git@host.example:a/b.git") == "ssh://git@host.example/a/b.git"
    for text in ("-x/y", "a b/c", "git@-host:x", "git@h:-x", "ftp://h/x", "https://h/x?y", "x"):
        assert git_url(text) is None
    assert is_ref("release/1.0")
    assert not is_ref("-x") and not is_ref("a:b") and not is_ref("a..b") and not is_ref("^x")


# Installing: whole directories, pinned, with nothing run and nothing followed.


def test_a_plugin_is_installed_whole_and_pinned(
    forge: ForgeService, acme: Repository, work: Path
) -> None:
    add(forge, acme.path / ".git", "acme")
    install(forge, "review")
    folder = work / ".fractary/plugins/review"
    assert (folder / "agents/reviewer.md").read_text() == REVIEWER
    assert os.access(folder / "skills/deploy/scripts/run.sh", os.X_OK)
    assert not list(folder.rglob(".git"))
    pin = as_json(work / ".fractary/plugins.lock.json")["plugins"]["review"]
    assert pin["commit"] == acme.git("rev-parse", "HEAD")
    assert pin["source"] == {"type": "git", "url": f"{acme.url}/.git", "path": "review"}
    assert set(pin["files"]) == {
        str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()
    }


def test_the_lockfile_installs_the_same_again(
    forge: ForgeService, acme: Repository, work: Path
) -> None:
    add(forge, acme.path / ".git", "acme")
    install(forge, "review")
    folder = work / ".fractary/plugins/review"
    acme.commit({"review/agents/reviewer.md": REVIEWER + "More.\n"})
    shutil.rmtree(folder)
    place = forge.workspace().plugins.place("local")
    assert [each.name for each in installer(forge).restore(place).installed] == ["review"]
    assert (folder / "agents/reviewer.md").read_text() == REVIEWER
    assert installer(forge).restore(place).installed == ()
    lock = as_json(place.lockfile)
    lock["plugins"]["review"]["files"]["agents/reviewer.md"] = "sha256-" + "0" * 64
    place.lockfile.write_text(json.dumps(lock))
    with pytest.raises(ForgeError, match="other files than the lockfile says") as caught:
        installer(forge).restore(place, force=True)
    assert caught.value.code == "INTEGRITY_ERROR"


def test_hooks_filters_links_and_submodules_do_nothing(
    forge: ForgeService, tmp_path: Path, work: Path
) -> None:
    made = shop(tmp_path / "evil")
    (tmp_path / "secret.txt").write_text("secret")
    trap = f"#!/bin/sh\ntouch {tmp_path}/trapped\n"
    write(made.path / ".git/hooks", {"post-checkout": trap, "reference-transaction": trap})
    for hook in ("post-checkout", "reference-transaction"):
        (made.path / ".git/hooks" / hook).chmod(0o755)
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"
    write(made.path, {"shared/notes.md": "notes\n", "review/.gitattributes": "* filter=evil\n"})
    write(made.path, {"review/large.bin": pointer})
    for name, target in {
        "out": "../../secret.txt",
        "absolute": str(tmp_path / "secret.txt"),
        "loop": "loop",
        "above": "..",
        "inside": "../shared/notes.md",
        "folder": "../shared",
    }.items():
        (made.path / "review" / name).symlink_to(target)
    (made.path / ".git/hooks/reference-transaction").unlink()
    made.commit()
    made.git(
        "update-index", "--add", "--cacheinfo", f"160000,{made.git('rev-parse', 'HEAD')},review/sub"
    )
    made.git("commit", "-q", "-m", "submodule")
    write(made.path / ".git", {"hooks/reference-transaction": trap})
    (made.path / ".git/hooks/reference-transaction").chmod(0o755)
    made.git("config", "filter.evil.smudge", f"touch {tmp_path}/trapped")
    (tmp_path / "trapped").unlink(missing_ok=True)
    add(forge, made.path / ".git", "evil")
    result = install(forge, "review")
    folder = work / ".fractary/plugins/review"
    assert not (tmp_path / "trapped").exists()
    assert not any(path.is_symlink() for path in folder.rglob("*"))
    assert (folder / "inside").read_text() == "notes\n"
    assert (folder / "folder/notes.md").read_text() == "notes\n"
    assert "secret" not in "".join(p.read_text() for p in folder.rglob("*") if p.is_file())
    told = " ".join(result.warnings)
    assert "large.bin is kept in Git LFS" in told
    for name in ("out", "absolute", "loop", "above", "sub"):
        assert f"review: {name} was left out" in told


def test_paths_that_no_file_can_have_stay_out(
    forge: ForgeService, tmp_path: Path, work: Path
) -> None:
    made = shop(tmp_path / "evil")
    blob = made.git("hash-object", "-w", "review/commands/check.md")
    inner = made.git("rev-parse", "HEAD:review")
    rows = "".join(f"100644 blob {blob}\t{name}\n" for name in (".git", "a\\b"))
    tree = made.git("mktree", stdin=f"{made.git('ls-tree', inner)}\n{rows}")
    market = made.git("rev-parse", "HEAD:.claude-plugin")
    both = f"040000 tree {market}\t.claude-plugin\n040000 tree {tree}\treview\n"
    top = made.git("mktree", stdin=both)
    made.git("update-ref", "HEAD", made.git("commit-tree", top, "-m", "evil"))
    add(forge, made.path / ".git", "evil")
    result = install(forge, "review")
    assert "no file of a plugin can have that path" in " ".join(result.warnings)
    assert not (work / ".fractary/plugins/review/.git").exists()


def test_a_directory_is_not_left_through_a_link(
    forge: ForgeService, tmp_path: Path, work: Path
) -> None:
    write(
        tmp_path / "market",
        {
            ".claude-plugin/marketplace.json": marketplace("m", {"name": "one", "source": "./one"}),
            **plugin("one"),
        },
    )
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret/key").write_text("secret")
    (tmp_path / "market/one/leak").symlink_to(tmp_path / "secret/key")
    (tmp_path / "market/one/leaks").symlink_to(tmp_path / "secret")
    add(forge, tmp_path / "market")
    told = " ".join(install(forge, "one").warnings)
    assert "leak was left out" in told and "leaks was left out" in told
    assert not list((work / ".fractary/plugins/one").glob("leak*"))


def test_without_a_manifest_the_entry_becomes_it(
    forge: ForgeService, tmp_path: Path, work: Path
) -> None:
    entry = {
        "name": "docs",
        "source": "./",
        "strict": False,
        "category": "writing",
        "description": "Documents",
        "skills": ["./skills/pdf"],
    }
    made = repository(
        tmp_path / "skills",
        {
            ".claude-plugin/marketplace.json": marketplace("skills", entry),
            "skills/pdf/SKILL.md": "---\nname: pdf\ndescription: PDFs\n---\nRead.\n",
            "skills/of-another/SKILL.md": "---\nname: of-another\ndescription: x\n---\n",
        },
    )
    add(forge, made.path / ".git", "skills")
    install(forge, "docs")
    manifest = as_json(work / ".fractary/plugins/docs/.claude-plugin/plugin.json")
    assert manifest == {"name": "docs", "description": "Documents", "skills": ["./skills/pdf"]}
    assert [each.name for each in (work / ".fractary/plugins/docs/skills").iterdir()] == ["pdf"]
    shutil.rmtree(work / ".fractary/plugins/docs")
    place = forge.workspace().plugins.place("local")
    assert [each.name for each in installer(forge).restore(place).installed] == ["docs"]


# Updating.


def test_update_and_outdated_follow_the_registry_it_came_from(
    forge: ForgeService, acme: Repository, tmp_path: Path, work: Path
) -> None:
    add(forge, acme.path / ".git", "acme")
    install(forge, "review@acme")
    rival = tmp_path / "rival"
    write(
        rival,
        {
            ".claude-plugin/marketplace.json": marketplace(
                "rival", {"name": "review", "source": "./review"}
            ),
            **plugin("review", "99.0.0"),
        },
    )
    add(forge, rival)
    assert {row.registry for row in forge.plugin_search("review").results} == {"acme", "rival"}
    told = install(forge, "review", "claude").warnings
    assert told == ("review is the one of rival; there is also review@acme",)
    installer(forge).uninstall("review", forge.workspace().plugins.place("local", "claude"))
    assert forge.plugin_list(outdated=True).total == 0
    acme.commit(
        {
            "review/.claude-plugin/plugin.json": {"name": "review", "version": "2.1.0"},
            "review/agents/reviewer.md": REVIEWER.replace("brief", "short"),
        }
    )
    (row,) = forge.plugin_list(outdated=True).plugins
    assert (row.version, row.latestVersion, row.hasUpdate) == ("2.0.0", "2.1.0", True)
    result = installer(forge).update([])
    assert [(each.from_, each.to) for each in result.updated] == [("2.0.0", "2.1.0")]
    assert "short" in (work / ".fractary/plugins/review/agents/reviewer.md").read_text()
    assert forge.plugin_list(outdated=True).total == 0


@pytest.mark.parametrize("form", ["git", "directory"])
def test_without_versions_another_content_is_an_update(
    forge: ForgeService, tmp_path: Path, form: str
) -> None:
    entry = {"name": "bare", "source": "./bare"}
    made = repository(
        tmp_path / "m",
        {".claude-plugin/marketplace.json": marketplace("m", entry), **plugin("bare", None)},
    )
    add(forge, made.path / ".git" if form == "git" else made.path, "m")
    install(forge, "bare")
    made.commit({"elsewhere.md": "not of the plugin\n"})
    assert installer(forge).update([]).updated == ()
    made.commit({"bare/agents/reviewer.md": REVIEWER + "More.\n"})
    assert [row.name for row in forge.plugin_list(outdated=True).plugins] == ["bare"]
    (step,) = installer(forge).update([]).updated
    assert step.from_ != step.to and step.to.startswith("0.0.0+")
    assert installer(forge).update([]).updated == ()


def test_an_edited_plugin_is_kept(forge: ForgeService, acme: Repository, work: Path) -> None:
    add(forge, acme.path / ".git", "acme")
    install(forge, "review")
    mine = work / ".fractary/plugins/review/agents/reviewer.md"
    mine.write_text("mine")
    acme.commit({"review/.claude-plugin/plugin.json": {"name": "review", "version": "2.1.0"}})
    with pytest.raises(
        ForgeError, match=r"edited or added after installation: agents/reviewer\.md"
    ):
        installer(forge).update([])
    assert mine.read_text() == "mine"


def test_a_repository_that_is_gone_is_answered_for_by_what_was_fetched(
    github: ForgeService, tmp_path: Path, work: Path
) -> None:
    made = shop(tmp_path / "hub/acme/tools.git")
    add(github, "acme/tools", "acme")
    config = work / ".fractary/config.json"
    data = as_json(config)
    data["registries"][0]["cache_ttl"] = 0
    config.write_text(json.dumps(data))
    github.cache_clear("manifests")
    assert github.plugin_search("review").total == 1
    made.path.rename(tmp_path / "away")
    result = github.plugin_search("review")
    assert result.total == 1
    assert "using its manifest of" in result.warnings[0]
    assert [each.name for each in install(github, "review").installed] == ["review"]


def test_a_cleared_cache_is_fetched_again(forge: ForgeService, acme: Repository) -> None:
    add(forge, acme.path / ".git", "acme")
    cleared = forge.cache_clear()
    assert cleared.cleared.downloads == 1
    assert forge.cache_stats().downloads.count == 0
    assert [each.name for each in install(forge, "review").installed] == ["review"]


# For Claude Code.


def test_a_plugin_for_claude_code_goes_where_it_looks(
    forge: ForgeService, acme: Repository, work: Path
) -> None:
    add(forge, acme.path / ".git", "acme")
    install(forge, "review", "claude")
    assert (work / ".claude/skills/review/.claude-plugin/plugin.json").is_file()
    assert not (work / ".fractary/plugins/review").exists()
    assert sorted(path.name for path in (work / ".claude/skills").iterdir()) == ["review"]
    acme.commit({"review/.claude-plugin/plugin.json": {"name": "review", "version": "2.1.0"}})
    assert [each.to for each in installer(forge).update([]).updated] == ["2.1.0"]
    shutil.copytree(work / ".claude/skills/review", work / ".claude/skills/mine")
    write(work / ".claude/skills/mine", {".claude-plugin/plugin.json": {"name": "mine"}})
    acme.commit(
        {
            ".claude-plugin/marketplace.json": marketplace(
                "acme-tools",
                {"name": "review", "source": "./review"},
                {"name": "mine", "source": "./review"},
            )
        }
    )
    assert installer(forge).update([]).updated == ()  # a plugin of somebody's own making
    shutil.rmtree(work / ".claude/skills/mine")
    (row,) = forge.plugin_list().plugins
    assert (row.path, row.version) == (".claude/skills/review", "2.1.0")
    installer(forge).uninstall("review", None)
    assert list((work / ".claude/skills").iterdir()) == []
    assert not (work / ".claude/forge-plugins.lock.json").exists()


# Search, and what cannot be found.


def test_search_takes_words_in_any_order_in_part_and_misspelt(
    forge: ForgeService, tmp_path: Path
) -> None:
    texts = {
        "pr-review-toolkit": "Reviews pull requests on GitHub with several agents",
        "commit-commands": "Git commit, push and pull request creation",
        "frontend-design": "Distinctive interfaces for the web",
        "postgres-tuning": "Finds slow queries in a PostgreSQL database",
    }
    entries = [
        {"name": name, "source": f"./{name}", "description": text} for name, text in texts.items()
    ]
    write(tmp_path, {"m/.claude-plugin/marketplace.json": marketplace("m", *entries)})
    add(forge, tmp_path / "m")
    assert names(forge, "github pull request")[0] == "pr-review-toolkit"
    assert set(names(forge, "github pull request")) == {"pr-review-toolkit", "commit-commands"}
    assert names(forge, "request pull github") == names(forge, "github pull request")
    assert names(forge, "databse")[0] == "postgres-tuning"
    assert names(forge, "postgre")[0] == "postgres-tuning"
    assert names(forge, "front end design")[0] == "frontend-design"
    assert names(forge, "commit commands")[0] == "commit-commands"
    assert names(forge, "zzzz") == []


def test_a_registry_with_nothing_usable_says_so(
    forge: ForgeService, site: Site, configure: Callable[..., None]
) -> None:
    site.put("/r.json", {"plugins": [{"name": "one"}, {"version": "1"}, {"name": "a b"}]})
    configure({"name": "empty", "url": f"{site.url}/r.json"})
    with pytest.raises(ForgeError, match="3 of 3 entries left out: one has neither") as caught:
        forge.plugin_info("one", remote=True)
    assert caught.value.code == "PLUGIN_NOT_FOUND"
    assert "entry 2 has no name" in str(caught.value)
    with pytest.raises(ForgeError, match="3 of 3 entries left out"):
        install(forge, "one")


def test_a_name_that_is_nearly_right_is_suggested(forge: ForgeService, acme: Repository) -> None:
    add(forge, acme.path, "acme")
    for name in ("reveiw", "@acme/review", "Review"):
        with pytest.raises(ForgeError) as caught:
            install(forge, name)
        assert "Did you mean review?" in caught.value.suggestions
    install(forge, "review")
    with pytest.raises(ForgeError) as caught:
        forge.plugin_info("reviews")
    assert "Did you mean review?" in caught.value.suggestions
