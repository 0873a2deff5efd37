#!/bin/sh
# kubectl-duepoint @VERSION@: makes its environment at the first use, from the files beside it.
set -eu
here=$(dirname "$(readlink -f "$0" 2>/dev/null || python3 -c \
  'import os, sys; print(os.path.realpath(sys.argv[1]))' "$0")")
home=${XDG_CACHE_HOME:-$HOME/.cache}/duepoint/kubectl-@VERSION@
if [ ! -e "$home/complete" ]; then
  python=${DUEPOINT_PYTHON:-python3}
  if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    echo "kubectl duepoint needs Python 3.11 or later; set DUEPOINT_PYTHON to it" >&2
    exit 2
  fi
  echo "kubectl duepoint: making its environment in $home, once" >&2
  rm -rf "$home"
  "$python" -m venv "$home"
  "$home/bin/pip" install --quiet --disable-pip-version-check --require-hashes \
    -r "$here/@LOCK@"
  "$home/bin/pip" install --quiet --disable-pip-version-check --no-deps "$here/@WHEEL@"
  touch "$home/complete"
fi
exec "$home/bin/kubectl-duepoint" "$@"
