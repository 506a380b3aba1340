#!/bin/sh
# Shows that tools/check-layers accepts what it should and finds what it should: each case is a tree with
# one include more than a good one.
set -eu
checker=$(cd "$(dirname "$0")/../.." && pwd)/tools/check-layers
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0
failed=0

# A small tree that obeys every rule.
make_good_tree() {
  rm -rf "$work/tree"
  mkdir -p "$work/tree" && cd "$work/tree"
  mkdir -p core fsm store providers/one providers/two providers/remote tools/agent-desktop tests/store
  echo '#include <stddef.h>' >core/error.h
  printf '#include "core/error.h"\n#include <jansson.h>\n' >core/json.c
  printf '#include "core/error.h"\n' >fsm/step.h
  printf '#include "core/error.h"\n#include <lmdb.h>\n' >store/journal.c
  printf '#include <sys/types.h>\n' >store/journal.h
  printf '#include "fsm/step.h"\n' >providers/provider.h
  printf '#include "core/error.h"\n' >providers/remote/ssh.h
  printf '#include "providers/provider.h"\n#include "providers/remote/ssh.h"\n' >providers/one/one.h
  printf '#include "providers/provider.h"\n' >providers/two/two.h
  printf '#include "providers/one/one.h"\n#include "providers/two/two.h"\n' >providers/registry.c
  printf '#include "providers/one/one.h"\n#include "store/journal.h"\n' >tools/agent-desktop/main.c
  printf '#include <cmocka.h>\n#include "store/journal.h"\n' >tests/store/test_journal.c
}

# expect pass|fail WHAT FILE LINE: the good tree with LINE added to FILE.
expect() {
  make_good_tree
  [ -z "$3" ] || printf '%s\n' "$4" >>"$3"
  if output=$("$checker" "$work/tree" 2>&1); then result=pass; else result=fail; fi
  # A refusal must also name the file, so that a checker that fails for another reason is not believed.
  if [ "$result" = "$1" ] && { [ "$1" = pass ] || [ "${output#"$3":}" != "$output" ]; }; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    echo "not as expected ($1): $2: $output" >&2
  fi
}

expect pass 'the good tree' '' ''
expect pass 'tools include everything' tools/agent-desktop/main.c '#include "fsm/step.h"'
expect fail 'core includes upwards' core/error.h '#include "fsm/step.h"'
expect fail 'fsm includes its sibling store' fsm/step.h '#include "store/journal.h"'
expect fail 'fsm includes a provider' fsm/step.h '#include "providers/provider.h"'
expect fail 'store includes fsm' store/journal.c '#include "fsm/step.h"'
expect fail 'a provider includes store' providers/one/one.h '#include "store/journal.h"'
expect fail 'a provider includes another' providers/one/one.h '#include "providers/two/two.h"'
expect fail 'the contract includes a provider' providers/provider.h '#include "providers/one/one.h"'
expect fail 'a provider includes tools' providers/two/two.h '#include "tools/agent-desktop/main.c"'
expect fail 'jansson outside of json.c' core/error.c '#include <jansson.h>'
expect fail 'lmdb outside of store' fsm/step.c '#include <lmdb.h>'
expect fail 'lmdb in tools' tools/agent-desktop/main.c '#include <lmdb.h>'
expect fail 'msgpack in a provider' providers/two/two.c '#include <msgpack.h>'
expect fail 'a third-party header in a header' store/journal.h '#include <lmdb.h>'
expect fail 'a library nobody has written down' core/error.h '#include <openssl/sha.h>'
expect fail 'a name without its folder' store/journal.c '#include "journal.h"'
expect fail 'a way round by ..' fsm/step.h '#include "fsm/../store/journal.h"'
expect fail 'a header that is not there' fsm/step.h '#include "core/gone.h"'
expect fail 'blanks around the hash' fsm/step.h ' #  include "store/journal.h"'
expect fail 'a computed include' core/error.h '#include HEADER'

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
