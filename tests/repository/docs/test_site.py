"""The site has every page, and links lead on it where they lead in the repository."""

from __future__ import annotations

import pytest
import yaml

from tools.devcluster.state import REPOSITORY
from tools.docs import links


class Loader(yaml.SafeLoader):
    """Reads mkdocs.yml, which asks for an environment variable."""


Loader.add_constructor("!ENV", lambda loader, node: loader.construct_sequence(node)[-1])
CONFIGURATION = yaml.load((REPOSITORY / "mkdocs.yml").read_text(), Loader=Loader)
PAGES = links.markdown_files(REPOSITORY / "docs", REPOSITORY) | {
    links.HOME: (REPOSITORY / links.HOME).read_text()
}


def named(entries):
    for entry in entries:
        for value in entry.values() if isinstance(entry, dict) else [entry]:
            yield from named(value) if isinstance(value, list) else [value]


def test_every_page_stands_in_the_navigation_once():
    outside = {
        path: text for path, text in links.reached(PAGES, REPOSITORY).items() if text is not None
    }
    pages = [links.site_path(path, REPOSITORY) for path in [*PAGES, *outside]]
    shown = list(named(links.navigation(CONFIGURATION["nav"], pages)))

    assert sorted(shown) == sorted(pages)


def test_a_search_finds_how_tos_and_reference_before_notes_and_what_is_not_for_readers():
    places = [links.site_path(path, REPOSITORY) for path in PAGES]
    of = {
        folder: {links.search_boost(each) for each in places if each.startswith(f"{folder}/")}
        for folder in ("howto", "tutorial", "explanation", "design")
    }

    assert min(of["howto"] | of["tutorial"]) > max(of["explanation"])
    assert min(of["explanation"]) > 1.0 > max(of["design"])
    assert links.search_boost("reference/schedule.md") == 1.0
    assert links.search_boost("repository/CHANGELOG.md") == max(of["design"])


def test_what_the_navigation_names_by_hand_exists():
    by_hand = {each for each in named(CONFIGURATION["nav"]) if not each.endswith("/")}

    assert by_hand <= {links.site_path(path, REPOSITORY) for path in PAGES}


def test_a_folder_in_the_navigation_stands_for_what_is_named_nowhere_else():
    entries = [{"A": ["a/z.md", "a/"]}, {"Empty": ["c/"]}, "b.md"]

    filled = links.navigation(entries, ["a/z.md", "a/m.md", "a/README.md", "b.md"])

    assert filled == [{"A": ["a/z.md", "a/README.md", "a/m.md"]}, "b.md"]


@pytest.fixture
def repository(tmp_path):
    for name in (
        "docs/howto/a.md",
        "docs/b.md",
        "README.md",
        "LICENSE",
        "kit/x.yaml",
        "gitops/README.md",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"# {name}\n")
    return tmp_path


@pytest.mark.parametrize(
    ("page", "link", "on_the_site"),
    [
        ("docs/howto/a.md", "../b.md#part", "../b.md#part"),
        ("docs/howto/a.md", "../../README.md", "../index.md"),
        ("docs/howto/a.md", "../../LICENSE", "../repository/LICENSE"),
        ("docs/howto/a.md", "../../gitops", "../repository/gitops/README.md"),
        ("docs/howto/a.md", "../../kit", "../repository/kit/folder.md"),
        ("README.md", "docs/howto/a.md", "howto/a.md"),
        ("README.md", "docs/", "folder.md"),
        ("gitops/README.md", "../docs/b.md", "../../b.md"),
        ("docs/b.md", "#here", "#here"),
        ("docs/b.md", "https://example.com/a.md", "https://example.com/a.md"),
        ("docs/b.md", "mailto:a@example.com", "mailto:a@example.com"),
    ],
)
def test_a_link_leads_to_the_same_place(repository, page, link, on_the_site):
    assert links.rewritten(f"[x]({link})", page, repository) == f"[x]({on_the_site})"


def test_code_is_left_as_it_is(repository):
    text = "[x](b.md)\n```yaml\n[x](../LICENSE)\n```\n[y](../LICENSE)\n"

    assert links.rewritten(text, "docs/b.md", repository) == (
        "[x](b.md)\n```yaml\n[x](../LICENSE)\n```\n[y](repository/LICENSE)\n"
    )


def test_what_pages_outside_lead_to_is_part_of_the_site(repository):
    (repository / "gitops/README.md").write_text("[k](../kit) [l](../LICENSE) [m](missing.md)")

    found = links.reached({"docs/b.md": "[g](../gitops)"}, repository)

    assert set(found) == {"gitops/README.md", "kit/folder.md", "kit/x.yaml", "LICENSE"}
    assert found["kit/folder.md"] == "# kit\n\n- [x.yaml](x.yaml)\n"
    assert found["LICENSE"] is None


@pytest.mark.parametrize(
    ("heading", "anchor"),
    [
        ("Who may do what", "who-may-do-what"),
        ("Redis: address, requirements", "redis-address-requirements"),
        ("`duepoint run` - options", "duepoint-run---options"),
    ],
)
def test_a_heading_has_the_id_that_it_has_in_the_repository(heading, anchor):
    assert links.slug(heading, "-") == anchor
