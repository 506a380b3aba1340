#!/bin/sh
# within_reach.sh PROGRAM [ARGS...] - runs a test program from where an ordinary user, too, can reach it.
#
# Run by root, some tests go on as nobody; a build below a closed directory (/root) is copied out of it first.
set -eu
program=$1
shift
if [ "$(id -u)" -ne 0 ] || setpriv --reuid=65534 --regid=65534 --clear-groups test -x "$program"; then
  exec "$program" "$@"
fi
folder=$(mktemp -d /var/tmp/ad-test-XXXXXX)
trap 'rm -rf "$folder"' EXIT
trap 'exit 143' INT TERM
chmod 755 "$folder"
cp "$program" "$folder/"
"$folder/${program##*/}" "$@"
