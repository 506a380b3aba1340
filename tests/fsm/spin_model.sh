#!/bin/sh
# spin_model.sh MODEL - verifies specs/lifecycle.pml, and that each bug planted in it is found: a model that
# never failed is not known to see. Exits 77 where spin or gcc is missing.
set -eu

model=$1
variants='NO_TOKEN NO_LOCK NO_RECHECK STALE_LOOK BLIND_JUDGE'

for tool in spin gcc; do
    if ! command -v "$tool" >/dev/null; then
        echo "skipped: $tool is not installed"
        exit 77
    fi
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
cp "$model" model.pml

# verify OPTIMISE [-DVARIANT]: pan's report in ./report. The depth is well above the deepest path (830,000).
verify() {
    optimise=$1
    shift
    spin -a "$@" model.pml
    gcc "$optimise" -w -DSAFETY -o pan pan.c
    ./pan -m2000000 -w22 >report 2>&1 || true
}

fail() {
    echo "FAILED: $1"
    cat report
    exit 1
}

verify -O1
grep -q 'errors: 0$' report || fail 'the model is violated'
if grep -q -e 'max search depth too small' -e 'Search not completed' report; then
    fail 'the search was not exhaustive'
fi
grep 'states, stored' report

for variant in $variants; do
    grep -q "ifdef $variant\$" model.pml || fail "no bug is planted as $variant"
    verify -O0 "-D$variant"
    grep -q 'assertion violated' report || fail "$variant was not found"
    echo "$variant: found, $(grep -m1 -o 'assertion violated.*' report)"
done
