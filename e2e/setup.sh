#!/usr/bin/env bash
# Makes the environment: uv from PyPI, the locked packages with their hashes, the members in place.
# usage: setup.sh VENV UV_VERSION
set -euo pipefail
venv=$1 uv_version=$2
cd "$(dirname "$0")/.."
python=$(command -v python3 || true)
[ -n "$python" ] || { echo "python3 is missing: install Python 3.11 or newer (Debian: apt-get install python3 python3-venv)" >&2; exit 1; }
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
  { echo "python3 is $("$python" -V 2>&1 | cut -d' ' -f2): Logfleet needs Python 3.11 or newer" >&2; exit 1; }
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv" ||
  { echo "python3 cannot make environments: install its venv module (Debian: apt-get install python3-venv)" >&2; exit 1; }
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check "uv==$uv_version"
export VIRTUAL_ENV=$PWD/$venv
"$venv/bin/uv" pip sync --quiet --compile-bytecode --require-hashes e2e/requirements.lock
"$venv/bin/uv" pip install --quiet "uv==$uv_version"
"$venv/bin/uv" pip install --quiet --no-deps --no-build-isolation \
  -e broker_image -e operator -e spark-on-k8s -e e2e
if [ -f broker_image/src/logfleet/wire/stubs.py ]; then
  "$venv/bin/python" -m logfleet.wire.stubs
fi
"$venv/bin/python" spark-on-k8s/prepare_spark.py
