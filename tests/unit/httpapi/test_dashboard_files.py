"""The dashboard's files: each is there, is needed, is packed, and needs nothing from elsewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from duepoint.httpapi.dashboard import files

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "operator/duepoint/httpapi/dashboard/web"
SCRIPTS = sorted(FOLDER.glob("*.js"))
INDEX = (FOLDER / files.INDEX).read_text()

#: What would read text as HTML or as a program, or open a way around the policy.
UNSAFE = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|srcdoc"
    r"|\bsetAttribute\(\"(?:style|on)|document\.cookie|localStorage\.setItem\(\"(?!duepoint-theme)"
)
#: Names of things, which nothing fetches.
NAMESPACES = ("http://www.w3.org/2000/svg",)


def test_the_policy_allows_what_the_files_need_and_nothing_else():
    directives = dict(
        part.strip().partition(" ")[::2] for part in files.POLICY.split(";") if part.strip()
    )
    assert directives["default-src"] == "'none'"
    assert directives["frame-ancestors"] == "'none'"
    assert directives["require-trusted-types-for"] == "'script'"
    for name in ("script-src", "style-src", "img-src", "connect-src"):
        assert directives[name] == "'self'"
    assert "unsafe" not in files.POLICY
    assert "*" not in files.POLICY


def test_the_page_holds_no_script_or_style_of_its_own():
    for script in re.findall(r"<script\b[^>]*>(.*?)</script>", INDEX, re.DOTALL):
        assert script == ""
    assert not re.search(r"<style|\sstyle=|\son[a-z]+=|javascript:", INDEX)


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_no_script_reads_text_as_html_or_as_a_program(path):
    assert not UNSAFE.search(path.read_text())


@pytest.mark.parametrize("path", sorted(FOLDER.iterdir()), ids=lambda path: path.name)
def test_no_file_asks_another_server(path):
    text = path.read_text()
    for name in NAMESPACES:
        text = text.replace(name, "")
    assert not re.search(r"https?://|@import|url\(|\"//", text)
