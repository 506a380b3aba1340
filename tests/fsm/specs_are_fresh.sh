#!/bin/sh
# specs_are_fresh.sh FSM_SPEC SOURCE_DIR - specs/lifecycle.* are what the tables of today print.
set -eu

fsm_spec=$1
source_dir=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$fsm_spec" md >"$work/lifecycle.md"
"$fsm_spec" pml "$source_dir/tools/specs/lifecycle.pml.in" >"$work/lifecycle.pml"

for file in lifecycle.md lifecycle.pml; do
    if ! diff -u "$source_dir/specs/$file" "$work/$file"; then
        echo "specs/$file is stale: build the target specs"
        exit 1
    fi
done
