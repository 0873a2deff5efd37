"""The hooks that MkDocs calls while it builds the site: `hooks` in mkdocs.yml.

MkDocs itself handles the files of docs/. The hooks add the home page, which is README.md, and files
outside docs/ that pages link to, and rewrite the links of each page. `links` maps the paths.
"""

from __future__ import annotations

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from tools.docs import links

REPOSITORY = Path(__file__).resolve().parents[2]


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Give headings the ids that links in the repository use."""
    config.mdx_configs["toc"] = {**config.mdx_configs.get("toc", {}), "slugify": links.slug}
    return config


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the home page and the linked files outside docs/."""
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
    """Return the text with links that lead to the same places on the site.

    The search index leaves out notes and files outside docs/, which would match every word.
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
