"""The mapping of files and links in the repository to pages and links on the site.

Pages are written for the repository: a link is a path from the page's own file, to another page, a
picture, or a file outside docs/. On the site a file `docs/A` is `A`, README.md is the home page,
and everything else that is linked to, directly or from such a page, is under `repository/`. A
folder is its README.md, or else a page that lists its files.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path

HOME = "README.md"
FOLDER = "folder.md"
_FENCE = re.compile(r"^( *)(```+).*?^\1\2 *$", re.MULTILINE | re.DOTALL)
_TARGET = re.compile(r"(\]\()([^)\s]+)(\))")
_OUTSIDE = re.compile(r"^[a-z][a-z0-9+.-]*:|^//")


def site_path(path: str, repository: Path) -> str:
    """Return the path on the site of a file or folder; `path` begins at the repository's root."""
    if path == HOME:
        return "index.md"
    if (repository / path).is_dir():
        return site_path(folder_page(path, repository), repository)
    inside = path.removeprefix("docs/")
    # MkDocs makes README.md an index, and so would have two with the home page's name.
    return inside if path.startswith("docs/") else f"repository/{path}"


def folder_page(path: str, repository: Path) -> str:
    """Return the page for a folder."""
    readme = posixpath.join(path, "README.md")
    return readme if (repository / readme).exists() else posixpath.join(path, FOLDER)


def targets(text: str, page: str) -> Iterator[str]:
    """Yield the paths in the repository that a page links to; `page` is its own."""
    for is_code, piece in _pieces(text):
        for _, target, _ in () if is_code else _TARGET.findall(piece):
            path = target.partition("#")[0]
            if path and not _OUTSIDE.match(target):
                yield _resolved(path, page)


def rewritten(text: str, page: str, repository: Path) -> str:
    """Return the page with its links rewritten for the site."""
    here = posixpath.dirname(site_path(page, repository))

    def link(found: re.Match[str]) -> str:
        path, mark, anchor = found[2].partition("#")
        if not path or _OUTSIDE.match(found[2]):
            return found[0]
        there = site_path(_resolved(path, page), repository)
        return f"{found[1]}{posixpath.relpath(there, here or '.')}{mark}{anchor}{found[3]}"

    pieces = _pieces(text)
    return "".join(piece if is_code else _TARGET.sub(link, piece) for is_code, piece in pieces)


def reached(pages: dict[str, str], repository: Path) -> dict[str, str | None]:
    """Return everything outside docs/ that pages (path -> text) link to, directly or not.

    The result is path -> text; None = not Markdown, to be copied. Missing files are left out:
    MkDocs reports them.
    """
    found: dict[str, str | None] = {}
    waiting = [target for page, text in pages.items() for target in targets(text, page)]
    while waiting:
        path = waiting.pop()
        if (repository / path).is_dir():
            path = folder_page(path, repository)
        if path in found or path in pages:
            continue
        file = repository / path
        if posixpath.basename(path) == FOLDER and not file.exists():
            found[path] = _listing(posixpath.dirname(path), repository)
            waiting += targets(found[path] or "", path)
        elif path.endswith(".md") and file.exists():
            found[path] = file.read_text()
            waiting += targets(found[path] or "", path)
        elif not path.startswith("docs/") and file.exists():
            found[path] = None
    return found


def _listing(folder: str, repository: Path) -> str:
    names = sorted(each.name for each in (repository / folder).iterdir() if each.is_file())
    return f"# {folder}\n\n" + "".join(f"- [{name}]({name})\n" for name in names)


def _resolved(path: str, page: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), path))


def _pieces(text: str) -> Iterator[tuple[bool, str]]:
    """Yield the text piece by piece, and whether each is a block of code."""
    start = 0
    for fence in _FENCE.finditer(text):
        yield False, text[start : fence.start()]
        yield True, fence[0]
        start = fence.end()
    yield False, text[start:]


def slug(heading: str, separator: str) -> str:
    """Return a heading's id as GitHub and GitLab make it, so that links work there and here."""
    return re.sub(r"[^\w\- ]", "", heading.lower().strip()).replace(" ", separator)
