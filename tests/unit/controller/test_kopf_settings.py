"""kopf takes any attribute for a setting: each of ours must be one that it knows."""

from __future__ import annotations

import ast
import inspect

import kopf

from duepoint.controller.watching import kopfthread


def test_every_setting_is_one_that_this_kopf_knows():
    defaults = kopf.OperatorSettings()
    tree = ast.parse(inspect.getsource(kopfthread.settings))
    written = [node.targets[0] for node in ast.walk(tree) if isinstance(node, ast.Assign)]
    paths = [ast.unparse(target).split(".")[1:] for target in written if "." in ast.unparse(target)]
    assert ["scanning", "disabled"] in paths
    unknown = [path for path in paths if not hasattr(getattr(defaults, path[0]), path[1])]
    assert not unknown
