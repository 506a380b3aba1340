#!/bin/bash
# test_provider.sh SCRIPT - providers/macos/provider.sh under each shell that is here, with small doubles in front of
# PATH. What the program makes of its answers is tested in test_host.c and others.
# shellcheck disable=SC2016 # doubles are shell within shell
set -u
script=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0
failed=0

# double TOOL: what it does is read from stdin. Without more it writes its words to $work/said and succeeds.
double() {
  { echo '#!/bin/sh'; cat; } >"$work/bin/$1"
  chmod 755 "$work/bin/$1"
}

listen() {
  local tool
  for tool; do
    double "$tool" <<<"{ printf %s $tool; [ \$# -eq 0 ] || printf '|%s' \"\$@\"; echo; } >>'$work/said'"
  done
}

# A Mac with its tools, and nothing said yet.
fresh() {
  rm -rf "${work:?}/bin" "$work/said" "$work/out"
  mkdir "$work/bin" "$work/out"
  double uname <<<'echo Darwin'
  double xcode-select <<<'echo /Library/Developer/CommandLineTools'
  double xcrun <<<'echo /Library/Developer/CommandLineTools/usr/bin/swiftc'
  double sleep <<<'exit 0' # nobody waits here
}

run() { PATH="$work/bin:$PATH" $shell "$script" "$@" >"$work/stdout" 2>"$work/stderr"; }

# check WHAT-HOLDS COMMAND...
check() {
  local what=$1
  shift
  if "$@"; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    echo "FAILED with $shell: $what"
    sed 's/^/    stderr: /' "$work/stderr"
  fi
}

status_is() { # STATUS VERB...
  local expected=$1 got=0
  shift
  run "$@" || got=$?
  [[ $got == "$expected" ]]
}

said() { [[ $(cat "$work/said" 2>/dev/null) == "$1" ]]; }
last_line_is() { [[ $(tail -n 1 "$work/stderr") == "$1" ]]; }
is_quiet() { [[ ! -s $work/stdout && ! -s $work/stderr ]]; }
out_is() { [[ $(ls -A "$work/out") == "$1" ]]; }

command_lines() {
  fresh
  listen hdiutil diskutil mount umount codesign
  check 'attach works' status_is 0 attach '/a b/"disk'\''.img'
  check 'attach is raw and mounts nothing' said \
    'hdiutil|attach|-nomount|-noverify|-noautofsck|-imagekey|diskimage-class=CRawDiskImage|-plist|/a b/"disk'\''.img'
  check 'and says nothing of its own' is_quiet
  rm "$work/said"
  check 'containers works' status_is 0 containers
  check 'mount-data works' status_is 0 mount-data disk5s5 '/m p'
  check 'unmount works' status_is 0 unmount '/m p'
  check 'detach works' status_is 0 detach disk4
  check 'detach takes a path' status_is 0 detach /dev/disk4
  check 'attached works' status_is 0 attached
  check 'verify works' status_is 0 verify '/a b'
  check 'their command lines' said 'diskutil|apfs|list|-plist
mount|-t|apfs|-o|noowners,nobrowse|/dev/disk5s5|/m p
umount|/m p
hdiutil|detach|/dev/disk4
hdiutil|detach|/dev/disk4
hdiutil|info|-plist
codesign|--verify|/a b'
}

wrong_calls() {
  local call
  fresh
  for call in '' nonsense 'host x' 'attach' 'attach relative' 'mount-data disk5s5' 'unmount relative' 'verify 123' \
    'build-vmhost /a /b' 'build-helper /a b'; do
    # shellcheck disable=SC2086 # words
    check "'$call' is a wrong call" status_is 64 $call
    check "and '$call' is told" test -s "$work/stderr"
  done
}

busy() {
  fresh
  double umount <<<"case \$1 in -f) exit 0 ;; esac; echo x >>'$work/said'; echo 'umount: Resource busy' >&2; exit 1"
  check 'a busy volume is unmounted by force' status_is 0 unmount /m
  check 'after four tries' said $'x\nx\nx\nx'
  fresh
  double hdiutil <<<"echo x >>'$work/said'; [ \"\${3-}\" = -force ] || { echo 'hdiutil: detach failed - Resource busy' >&2; exit 16; }"
  check 'a busy disk is detached by force' status_is 0 detach disk4
  fresh
  double hdiutil <<<"echo 'hdiutil: detach failed - Resource busy' >&2; exit 16"
  check 'one that stays busy is told as that' status_is 75 detach disk4
  check 'in words' last_line_is 'hdiutil cannot detach /dev/disk4: detach failed - Resource busy'
}

# codesign(1) exits with 1 for its verdict; whatever else it ends with proves nothing.
verdicts() {
  fresh
  double codesign <<<'exit 0'
  check 'a whole signature is an answer' status_is 0 verify /p
  check 'in a word' test "$(cat "$work/stdout")" = whole
  double codesign <<<'echo "/p: code object is not signed at all" >&2; exit 1'
  check 'a broken one is an answer too' status_is 0 verify /p
  check 'in another word' test "$(cat "$work/stdout")" = broken
  double codesign <<<'echo "codesign: Operation not permitted" >&2; exit 1'
  check 'not being let in is none' status_is 77 verify /p
  double codesign <<<'kill -9 $$'
  check 'a codesign that dies is none' status_is 1 verify /p
  check 'and nothing is said of the signature' test ! -s "$work/stdout"
  double codesign <<<'exit 127'
  check 'nor one that is not there' status_is 1 verify /p
}

# A compiler that leaves a file, and a codesign that believes it.
builders() {
  fresh
  double swiftc <<<"echo \"swiftc \$*\"; while [ \$# -gt 1 ]; do [ \"\$1\" != -o ] || echo new >\"\$2\"; shift; done"
  double codesign <<<"case \$1 in --display) echo '<key>com.apple.security.virtualization</key>' ;; *) echo \"codesign \$*\" >>'$work/said' ;; esac"
}

building() {
  builders
  echo old >"$work/out/vmhost"
  ln "$work/out/vmhost" "$work/old"
  check 'build-vmhost works' status_is 0 build-vmhost '/s o/vmhost.swift' /e "$work/out/vmhost"
  check 'for macOS 13 on' grep -q '^swiftc -O -target arm64-apple-macos13.0 -o .* /s o/vmhost.swift$' "$work/stdout"
  check 'signed ad hoc, with the entitlements' grep -q '^codesign --force --sign - --entitlements /e ' "$work/said"
  check 'the program is there, and nothing beside it' out_is vmhost
  check 'for its owner alone' test "$(stat -c %a "$work/out/vmhost")" = 700
  check 'in a new file' test "$(cat "$work/old")" = old
  rm "$work/old"
  builders
  check 'build-helper works' status_is 0 build-helper /h.swift "$work/out/helper"
  check 'signed without' test -z "$(grep entitlements "$work/said")"

  builders
  echo old >"$work/out/vmhost"
  double swiftc <<<'while [ $# -gt 1 ]; do [ "$1" != -o ] || echo half >"$2"; shift; done; echo "error: nonsense" >&2; exit 1'
  check 'what does not compile fails' status_is 1 build-vmhost /v.swift /e "$work/out/vmhost"
  check 'in words' last_line_is "swiftc cannot compile '/v.swift'"
  check 'behind those of the compiler' grep -qx 'error: nonsense' "$work/stderr"
  check 'and leaves nothing' out_is vmhost
  check 'but the old one' test "$(cat "$work/out/vmhost")" = old

  builders
  mkfifo "$work/pipe"
  double swiftc <<<"while [ \$# -gt 1 ]; do [ \"\$1\" != -o ] || echo half >\"\$2\"; shift; done; echo >'$work/pipe'; exec tail -f /dev/null"
  PATH="$work/bin:$PATH" $shell "$script" build-helper /h.swift "$work/out/helper" >/dev/null 2>&1 &
  read -r <"$work/pipe"
  kill -TERM $!
  pkill -P $!
  wait $!
  check 'what is ended leaves nothing' out_is ''
  rm "$work/pipe"
}

# Any other way to run a shim opens a dialog on the screen.
without_tools() {
  builders
  double xcode-select <<<'echo "xcode-select: error: Unable to get active developer directory." >&2; exit 2'
  listen swiftc xcrun
  check 'nothing is built without tools' status_is 69 build-helper /h.swift "$work/out/helper"
  check 'and no shim is run' test ! -e "$work/said"
  check 'and the fix is told' last_line_is 'the Xcode Command Line Tools are missing; run: xcode-select --install'
}

for shell in "dash" "bash --posix"; do
  command -v "${shell%% *}" >/dev/null || continue
  command_lines
  wrong_calls
  busy
  verdicts
  building
  without_tools
done
echo "$passed passed, $failed failed"
((failed == 0 && passed > 0))
