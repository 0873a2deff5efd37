"""The package as it is installed: everything it needs at run time is in the wheel."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
SCRIPTS = "duepoint/delayqueue/scripts"
PAGES = "duepoint/httpapi/dashboard/web/"


def test_every_script_is_in_the_wheel_with_its_includes(tmp_path):
    subprocess.run(
        [
            sys.executable, "-m", "build", "--wheel", "--no-isolation",
            "--outdir", str(tmp_path), str(ROOT),
        ],
        check=True,
        capture_output=True,
    )  # fmt: skip
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        inside = {name for name in packed.namelist() if name.startswith(SCRIPTS)}
        typed = "duepoint/py.typed" in packed.namelist()
        schema = "duepoint/model/jobspec.json" in packed.namelist()
        client = "duepoint/client/syncclient.py" in packed.namelist()
        pages = {name for name in packed.namelist() if name.startswith(PAGES)}
        (metadata,) = [name for name in packed.namelist() if name.endswith("/METADATA")]
        about = packed.read(metadata).decode()
    source = ROOT / "operator" / SCRIPTS
    here = {f"{SCRIPTS}/{path.relative_to(source)}" for path in source.rglob("*.lua")}
    assert inside == here
    assert len(here) > 12
    assert typed
    assert schema
    assert client
    assert pages == {f"{PAGES}{path.name}" for path in (ROOT / "operator" / PAGES).iterdir()}
    assert "Provides-Extra: client" in about
    assert re.search(r'^Requires-Dist: httpx2\b.*; extra == "client"$', about, re.MULTILINE)
