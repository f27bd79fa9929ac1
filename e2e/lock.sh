#!/usr/bin/env bash
# Resolves every member's requirements together: first all of them with the development tools, then each member
# alone, constrained to the same versions, so that one environment can hold everything and each image only its part.
set -euo pipefail
cd "$(dirname "$0")/.."
members=(broker_image operator spark-on-k8s)
inputs=(e2e/pyproject.toml)
for member in "${members[@]}"; do inputs+=("$member/pyproject.toml"); done
scratch=$(mktemp -d); trap 'rm -rf "$scratch"' EXIT
compile() { # OUT CONSTRAINTS INPUT...: hashes, and no name of an index in the file
  local out=$1 constraints=$2; shift 2
  uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate \
    --custom-compile-command "make lock" --no-emit-package logfleet --no-emit-package logfleet-operator \
    --no-emit-package logfleet-spark --constraints "$constraints" --overrides "$scratch/local.txt" "$@" -o "$out"
}
for member in broker_image operator spark-on-k8s; do
  name=$(sed -n 's/^name = "\(.*\)"/\1/p' "$member/pyproject.toml")
  echo "$name @ file://$PWD/$member"
done > "$scratch/local.txt"
: > "$scratch/none.txt"
compile e2e/requirements.lock "$scratch/none.txt" --all-extras "${inputs[@]}"
sed -E 's/ +\\$//; /^ +--hash/d' e2e/requirements.lock | grep -E '^[a-z0-9]' > "$scratch/all.txt"
compile broker_image/requirements.lock "$scratch/all.txt" --all-extras broker_image/pyproject.toml
# The operator and Spark's executors use the client alone: of logfleet's dependencies they get that group.
echo logfleet > "$scratch/without.txt"
for member in operator spark-on-k8s; do
  compile "$member/requirements.lock" "$scratch/all.txt" --excludes "$scratch/without.txt" \
    "$member/pyproject.toml" --group broker_image/pyproject.toml:client
done
for group in wheels clients; do
  compile "e2e/$group.lock" "$scratch/all.txt" --group "e2e/pyproject.toml:$group"
done
