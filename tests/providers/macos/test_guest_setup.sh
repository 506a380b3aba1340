#!/bin/bash
# test_guest_setup.sh SCRIPT - R-408: providers/macos/guest-setup.sh as a person runs it in the guest, under each shell
# that is here, with a home directory and a shared folder of its own.
# shellcheck disable=SC2016 # doubles are shell within shell
set -u
script=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0
failed=0
key='ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIexample agent-desktop demo'
share="$work/My Shared Files"
home="$work/a home"

double() { # TOOL; the body is on stdin
  { echo '#!/bin/sh'; cat; } >"$work/bin/$1"
  chmod 755 "$work/bin/$1"
}

# A guest that nothing was done in yet.
fresh() {
  rm -rf "${work:?}/bin" "$share" "$home"
  mkdir -p "$work/bin" "$share"
  mkdir -m 755 "$home"
  double id <<<'case $1 in -u) echo 501 ;; *) echo alice ;; esac'
  double fdesetup <<<'echo FileVault is Off.'
  cp "$script" "$share/guest-setup.sh"
  echo "$key" >"$share/authorized_key"
  echo program >"$share/agent-desktop"
  printf '#!/bin/sh\necho "$1" >"%s/asked"\necho "{}"\n' "$work" >"$share/agent-desktop-macos-helper"
  rm -f "$work/asked"
}

run_as() { # COMMAND...
  (cd "$work" && env HOME="$home" PATH="$work/bin:$PATH" "$@") >"$work/stdout" 2>"$work/stderr"
}
run() {
  # shellcheck disable=SC2086 # words
  run_as $shell "$share/guest-setup.sh"
}

check() { # WHAT-HOLDS COMMAND...
  local what=$1
  shift
  if "$@"; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    echo "FAILED with $shell: $what"
    sed 's/^/    /' "$work/stdout" "$work/stderr"
  fi
}

fails() { ! "$@"; }
mode_is() { [[ $(stat -c %a "$2") == "$1" ]]; } # MODE PATH
keys_are() { [[ $(cat "$home/.ssh/authorized_keys") == "$1" ]]; }
tells() { grep -qF -- "$1" "$work/stdout"; }
complains() { grep -qF -- "$1" "$work/stderr"; }
is_untouched() { [[ -z $(ls -A "$home") ]]; }

first_time() {
  fresh
  check 'it succeeds' run
  check 'the key is added' keys_are "$key"
  check '.ssh is closed' mode_is 700 "$home/.ssh"
  check 'the keys are closed' mode_is 600 "$home/.ssh/authorized_keys"
  check 'agent-desktop is installed' cmp "$share/agent-desktop" "$home/.local/bin/agent-desktop"
  check 'the helper is installed' cmp "$share/agent-desktop-macos-helper" "$home/.local/bin/agent-desktop-macos-helper"
  check 'both can be run' mode_is 755 "$home/.local/bin/agent-desktop"
  check 'nothing else is' test "$(find "$home/.local/bin" -mindepth 1 | wc -l)" = 2
  check 'permissions are requested' test "$(cat "$work/asked")" = request
  check 'Remote Login is left' tells 'System Settings > General > Sharing: turn on Remote Login'
  check 'Accessibility is left' tells 'System Settings > Privacy & Security > Accessibility: allow sshd-keygen-wrapper'
  check 'where to find it is told' tells /usr/libexec/sshd-keygen-wrapper
  check 'there is no warning' fails tells WARNING
  check 'and no complaint' test ! -s "$work/stderr"
}

again() {
  fresh
  run
  find "$home" -type f -printf '%i %p\n' | sort >"$work/before"
  check 'it succeeds again' run
  check 'the key is there once' keys_are "$key"
  check 'nothing was written' cmp -s "$work/before" <(find "$home" -type f -printf '%i %p\n' | sort)
  check 'the steps are told again' tells 'turn on Remote Login'
  echo 'a newer program' >"$share/agent-desktop"
  exec 9<"$home/.local/bin/agent-desktop"
  check 'it succeeds with a newer program' run
  check 'which is installed' cmp "$share/agent-desktop" "$home/.local/bin/agent-desktop"
  check 'in a new file' test "$(cat <&9)" = program
  exec 9<&-
}

keys_of_others() {
  fresh
  mkdir "$home/.ssh"
  printf 'ssh-rsa AAAA other' >"$home/.ssh/authorized_keys" # no end of the line
  check 'it succeeds beside other keys' run
  check 'and keeps them' keys_are $'ssh-rsa AAAA other\n'"$key"
  fresh
  mkdir "$home/.ssh"
  printf '# %s\n' "$key" >"$home/.ssh/authorized_keys"
  check 'a comment is no key' run
  check 'so the key is added' keys_are "# $key"$'\n'"$key"
  fresh
  mkdir -m 777 "$home/.ssh"
  chmod 775 "$home"
  : >"$home/.ssh/authorized_keys"
  chmod 666 "$home/.ssh/authorized_keys"
  check 'it succeeds in an open home' run
  check 'and closes the home' mode_is 755 "$home"
  check 'and .ssh' mode_is 755 "$home/.ssh"
  check 'and the keys' mode_is 600 "$home/.ssh/authorized_keys"
}

ways_to_start_it() {
  fresh
  check 'with a relative path' run_as sh -c "cd '$share' && exec $shell guest-setup.sh"
  check 'it works' keys_are "$key"
  fresh
  chmod 700 "$share/guest-setup.sh"
  check 'as a program' run_as "$share/guest-setup.sh"
  check 'it works' keys_are "$key"
  fresh
  cp "$share/guest-setup.sh" "$home/copy.sh"
  # shellcheck disable=SC2086 # words
  check 'a copy looks in the shared folder' fails run_as $shell "$home/copy.sh"
  check 'and names it' complains '(/Volumes/My Shared Files)'
}

what_may_be_missing() {
  local name
  for name in authorized_key agent-desktop agent-desktop-macos-helper; do
    fresh
    rm "$share/$name"
    check "without $name it fails" fails run
    check "and names $name" complains " $name"
    check 'and touches nothing' is_untouched
    check 'and tells no steps' fails tells 'Remote Login'
  done
  fresh
  echo 'no key' >"$share/authorized_key"
  check 'without a key it fails' fails run
  check 'and says so' complains 'does not hold an Ed25519 key'
  check 'and touches nothing' is_untouched
  fresh
  : >"$share/authorized_key"
  check 'with an empty file it fails' fails run
  check 'and says so' complains 'is empty'
  fresh
  double id <<<'echo 0'
  check 'as root it fails' fails run
  check 'and says so' complains 'without sudo'
  check 'and touches nothing' is_untouched
}

what_may_be_wrong() {
  fresh
  printf '#!/bin/sh\necho "no window server" >&2\nexit 1\n' >"$share/agent-desktop-macos-helper"
  check 'it succeeds when macOS cannot be asked' run
  check 'and tells why' tells 'no window server'
  check 'and the steps' tells 'allow sshd-keygen-wrapper'
  fresh
  double fdesetup <<<'echo FileVault is On.'
  check 'it succeeds with FileVault' run
  check 'and warns' tells 'WARNING: FileVault is on'
  fresh
  rm "$work/bin/fdesetup"
  check 'it succeeds without fdesetup' run
}

for shell in "dash" "bash --posix"; do
  command -v "${shell%% *}" >/dev/null || continue
  first_time
  again
  keys_of_others
  ways_to_start_it
  what_may_be_missing
  what_may_be_wrong
done
echo "$passed passed, $failed failed"
((failed == 0 && passed > 0))
