#!/bin/bash
# Shows that each check of tools/check accepts a small good tree and finds a planted fault in it: a check that
# has never failed is not known to look.
set -euo pipefail
top=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0
failed=0

# The project's checking files around one library of one module.
cd "$work"
git init -q .
mkdir -p core tools tests/tools packaging
cp "$top"/tools/check "$top"/tools/check-layers tools/
cp "$top"/tests/tools/test_check_layers.sh tests/tools/
cp "$top"/packaging/agent-desktop.1 packaging/
cp "$top"/.clang-format "$top"/.clang-tidy "$top"/.cppcheck-suppressions "$top"/CMakePresets.json .
cat >CMakeLists.txt <<'CMAKE'
cmake_minimum_required(VERSION 3.25)
project(small LANGUAGES C)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
add_library(small STATIC core/twice.c)
target_include_directories(small PRIVATE ${PROJECT_SOURCE_DIR})
target_sources(small PUBLIC FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR} FILES core/twice.h)
set_target_properties(small PROPERTIES VERIFY_INTERFACE_HEADER_SETS ON)
CMAKE
printf '/build/\n' >.gitignore
printf '#ifndef CORE_TWICE_H\n#define CORE_TWICE_H\n\nint twice(int n);\n\n#endif\n' >core/twice.h
printf '#include "core/twice.h"\n\nint twice(int n)\n{\n    return 2 * n;\n}\n' >core/twice.c

expect() { # pass|fail CHECK WHAT
  local result=fail
  tools/check "$2" >output 2>&1 && result=pass
  if [[ $result == "$1" && ($1 == pass || $(<output) == *"FAILED  $2"*) ]]; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    echo "not as expected ($1): $2: $3"
    sed 's/^/    /' output
  fi
  rm -f output
}

# find_planted CHECK FILE LINE WHAT: LINE is added at the end of FILE, and taken away again.
find_planted() {
  local before=$work/.git/before existed=false
  [[ ! -f $2 ]] || { existed=true; cp "$2" "$before"; }
  printf '%b' "$3" >>"$2"
  expect fail "$1" "$4"
  if $existed; then mv "$before" "$2"; else rm "$2"; fi
}

for check in whitespace words format layers shell python man headers cppcheck tidy; do
  expect pass "$check" 'the good tree'
done
find_planted whitespace notes.md 'a blank at the end \n' 'trailing blank'
find_planted whitespace core/twice.c '\tint tab;\n' 'a tab in C'
find_planted whitespace notes.md 'no newline' 'no newline at the end'
find_planted whitespace notes.md '<<<<<<< HEAD\n' 'a conflict mark'
find_planted whitespace notes.md 'a line of DOS\r\n' 'a carriage return'
find_planted words core/twice.c 'void f(char *a) { strcpy(a, "b"); }\n' 'a call without a bound'
find_planted words core/twice.c '/* TODO: later */\n' 'a note without an issue'
find_planted format core/twice.c 'int   wide;\n' 'format'
find_planted layers core/twice.c '#include "fsm/step.h"\n' 'an include upwards'
# shellcheck disable=SC2016
find_planted shell script '#!/bin/sh\necho $1\n' 'an unquoted variable, in a script without .sh'
find_planted python tests/wrong.py 'def f(:\n' 'a syntax error'
find_planted man packaging/agent-desktop.1 '.XX unknown\n' 'an unknown request'
find_planted headers core/twice.h 'struct unknown f(size_t n);\n' 'a header that needs another'
find_planted cppcheck core/twice.c 'int f(void);\nint f(void)\n{\n    int a[2] = { 0 };\n    return a[2];\n}\n' \
  'reading past the end'
find_planted tidy core/twice.c 'int f(int *p);\nint f(int *p)\n{\n    if (p)\n        return 1;\n    return *p;\n}\n' \
  'following NULL'

echo "$passed passed, $failed failed"
((failed == 0))
