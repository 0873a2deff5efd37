"""What MkDocs asks while it builds the site: `hooks` in mkdocs.yml.

The files of docs/ are MkDocs's own business. Added are the home page, which is README.md, and what
pages link to outside docs/; each page gets its links rewritten. `links` decides where things are.
"""

from __future__ import annotations

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from tools.docs import links

REPOSITORY = Path(__file__).resolve().parents[2]


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Headings have the ids that links in the repository use."""
    config.mdx_configs["toc"] = {**config.mdx_configs.get("toc", {}), "slugify": links.slug}
    return config


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Home page and what is linked to outside docs/ become files."""
    found = sorted((REPOSITORY / "docs").rglob("*.md"))
    pages = {str(path.relative_to(REPOSITORY)): path.read_text() for path in found}
    pages[links.HOME] = (REPOSITORY / links.HOME).read_text()
    files.append(
        File.generated(config, links.site_path(links.HOME, REPOSITORY), content=pages[links.HOME])
    )
    for path, text in links.reached(pages, REPOSITORY).items():
        place = links.site_path(path, REPOSITORY)
        if text is None:
            files.append(File.generated(config, place, abs_src_path=str(REPOSITORY / path)))
        else:
            files.append(File.generated(config, place, content=text))
    return files


def on_page_markdown(markdown: str, *, page: Page, **_: object) -> str:
    """The text with links that lead to the same places on the site.

    A search leaves out notes and files outside docs/, which name every word once.
    """
    place = page.file.src_uri
    page.meta["search"] = {"exclude": place.startswith(("design/", "repository/"))}
    if place == links.site_path(links.HOME, REPOSITORY):
        source = links.HOME
    elif place.startswith("repository/"):
        source = place.removeprefix("repository/")
    else:
        source = f"docs/{place}"
    return links.rewritten(markdown, source, REPOSITORY)
