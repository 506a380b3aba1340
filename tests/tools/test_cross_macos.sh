#!/bin/bash
# Shows that tools/cross-macos accepts a small good program and finds what a Mac would refuse: a check that has never
# failed is not known to look. Needs the packages of `tools/install-deps build cross`, and once the network.
set -euo pipefail
top=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0
failed=0

# The project's script around a program of its own.
cd "$work"
mkdir -p core tools
cp -r "$top"/tools/cross-macos "$top"/tools/cross tools/
cat >CMakeLists.txt <<'CMAKE'
cmake_minimum_required(VERSION 3.25)
project(small LANGUAGES C)
find_package(PkgConfig REQUIRED)
pkg_check_modules(LMDB REQUIRED IMPORTED_TARGET lmdb)
add_executable(agent-desktop core/main.c)
target_include_directories(agent-desktop PRIVATE ${PROJECT_SOURCE_DIR})
target_link_libraries(agent-desktop PRIVATE PkgConfig::LMDB)
target_sources(agent-desktop PUBLIC FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR} FILES core/main.h)
set_target_properties(agent-desktop PROPERTIES ENABLE_EXPORTS ON VERIFY_INTERFACE_HEADER_SETS ON)
CMAKE
cat >core/main.h <<'C'
#ifndef CORE_MAIN_H
#define CORE_MAIN_H

int twice(int n);

#endif
C
cat >core/main.c <<'C'
#include "core/main.h"

#include <lmdb.h>
#include <sys/stat.h>
#include <unistd.h>

int twice(int n)
{
    return 2 * n;
}

int main(void)
{
    return mdb_version(NULL, NULL, NULL) == NULL ? twice(1) : getpid() < 0;
}
C

expect() { # pass|fail VERB WHAT [WORDS OF ITS OUTPUT]
  local result=fail
  tools/cross-macos "$2" >output 2>&1 && result=pass
  if [[ $result == "$1" && $(<output) == *"${4:-}"* ]]; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    echo "not as expected ($1): $2: $3"
    sed 's/^/    /' output
  fi
  rm -f output
}

# find_planted VERB FILE LINE WORDS WHAT: LINE is added at the end of FILE, and taken away again.
find_planted() {
  cp "$2" before
  printf '%s\n' "$3" >>"$2"
  expect fail "$1" "$5" "$4"
  mv before "$2"
}

expect pass lint 'the good program' 'compile for macOS'
expect pass link 'the good program' 'links for macOS'
find_planted lint core/main.c 'int one(int fd) { return accept4(fd, 0, 0, 0); }' accept4 "a call that is Linux's only"
find_planted lint core/main.c '#include <sys/epoll.h>' sys/epoll.h "a header that is Linux's only"
find_planted lint core/main.c 'long two(const struct stat *st) { return st->st_mtim.tv_nsec; }' st_mtim \
  'a field that has another name'
find_planted lint core/main.h 'size_t three(void);' size_t 'a header that does not compile alone'
find_planted link core/main.c 'int epoll_create1(int); int four(void) { return epoll_create1(0); }' _epoll_create1 \
  'a function that the system does not have'
find_planted link core/main.c 'int mdb_env_invent(void); int five(void) { return mdb_env_invent(); }' _mdb_env_invent \
  'a function that a library does not have'

check_signature=tools/cross/check_signature.py
tools/cross-macos link >/dev/null
cp build/cross-link/agent-desktop changed
if python3 $check_signature changed >/dev/null && printf x | dd of=changed bs=1 seek=5000 conv=notrunc status=none &&
  ! python3 $check_signature changed >/dev/null 2>&1; then
  passed=$((passed + 1))
else
  failed=$((failed + 1))
  echo "not as expected: the signature of a program that was changed"
fi

echo "$passed passed, $failed failed"
((failed == 0))
