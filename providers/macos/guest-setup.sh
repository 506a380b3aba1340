#!/bin/sh
# guest-setup.sh - run once in the guest's Terminal, from the folder that the host shares:
#
#   sh "/Volumes/My Shared Files/guest-setup.sh"
#
# Lets the host log in over SSH, installs agent-desktop for this account, and asks macOS for the permission to
# drive the desktop. It changes nothing outside of this account's home, and may be run again at any time. What only
# a person can do is printed at the end.
set -u

readonly SHARE='/Volumes/My Shared Files' # where macOS mounts the host's folder
readonly HELPER=agent-desktop-macos-helper

say() { # LINE...
  printf '%s\n' "$@"
}

fail() { # SENTENCE...
  printf 'guest-setup: %s\n' "$@" >&2
  exit 1
}

# ---- before anything is done ----

check_account() {
  [ "$(id -u)" -ne 0 ] ||
    fail 'Run this as the user whose desktop is to be driven, without sudo: root has another home.'
  [ -d "${HOME:-}" ] || fail "There is no home directory '${HOME:-}' to install into."
}

find_share() {
  share=$(CDPATH='' cd -- "$(dirname -- "$0")" 2>/dev/null && pwd)
  [ -f "$share/authorized_key" ] || share=$SHARE # the script was copied, or came through a pipe
  missing=
  for name in authorized_key agent-desktop $HELPER; do
    [ -f "$share/$name" ] && [ -r "$share/$name" ] || missing="$missing $name"
  done
  [ -z "$missing" ] && return
  fail "These files are missing in the folder that the host shares ($share):$missing" \
    "On the host, run 'agent-desktop sandbox stop NAME' and 'agent-desktop sandbox start NAME': it writes them anew."
}

read_key() {
  IFS= read -r key <"$share/authorized_key" || [ -n "$key" ] || fail "$share/authorized_key is empty."
  case $key in
    'ssh-ed25519 AAAA'*) ;;
    *) fail "$share/authorized_key does not hold an Ed25519 key." ;;
  esac
}

# ---- the host's key ----

# sshd refuses keys below a directory that others can write (StrictModes, sshd_config(5)).
close_to_others() { # PATH
  [ -n "$(find "$1" -prune \( -perm -020 -o -perm -002 \) 2>/dev/null)" ] || return 0
  chmod go-w "$1" || fail "sshd refuses keys below $1 as long as others can write it, and that cannot be changed."
  say "Took the right to write $1 from others: sshd asks for it."
}

add_key() {
  file=$HOME/.ssh/authorized_keys
  [ -d "$HOME/.ssh" ] || mkdir -m 700 "$HOME/.ssh" || fail "$HOME/.ssh cannot be made."
  if [ -f "$file" ] && grep -qxF -e "$key" "$file"; then
    say "The host's key is in $file already."
  else
    [ -f "$file" ] || (umask 077 && : >"$file") || fail "$file cannot be made."
    # a last line without an end would swallow the key
    [ -z "$(tail -c 1 "$file")" ] || echo >>"$file"
    printf '%s\n' "$key" >>"$file" || fail "$file cannot be written."
    chmod 600 "$file"
    say "Added the host's key to $file."
  fi
  close_to_others "$HOME"
  close_to_others "$HOME/.ssh"
  close_to_others "$file"
}

# ---- the programs ----

# A new file renamed over the old: macOS may kill a program whose file was overwritten in place.
install_program() { # NAME
  to=$HOME/.local/bin/$1
  if [ -x "$to" ] && cmp -s "$share/$1" "$to"; then
    say "$to is up to date."
    return
  fi
  if ! cp "$share/$1" "$to.new" || ! chmod 755 "$to.new" || ! mv -f "$to.new" "$to"; then
    rm -f "$to.new"
    fail "$to cannot be written."
  fi
  say "Installed $to."
}

install_programs() {
  mkdir -p "$HOME/.local/bin" || fail "$HOME/.local/bin cannot be made."
  install_program agent-desktop
  install_program $HELPER
}

request_permissions() {
  if answer=$("$HOME/.local/bin/$HELPER" request 2>&1); then
    say "Asked macOS for the Accessibility permission."
  else
    say "macOS could not be asked for the Accessibility permission; step 2 below does without. ($answer)"
  fi
}

# ---- what is left ----

warn_of_filevault() {
  case $(fdesetup status 2>/dev/null) in
    *'FileVault is On'*) ;;
    *) return ;;
  esac
  say '' \
    'WARNING: FileVault is on. The host cannot open an encrypted disk, and this Mac would wait for a password at' \
    'each start. Turn it off: System Settings > Privacy & Security > FileVault.'
}

print_steps() {
  cat <<END

Two steps are left, which only a person can do, here in this Mac:

  1. System Settings > General > Sharing: turn on Remote Login.
  2. System Settings > Privacy & Security > Accessibility: allow sshd-keygen-wrapper.
     If the list does not have it: click +, press Command-Shift-G, type /usr/libexec/sshd-keygen-wrapper,
     press Return, and click Open.

After that, on the host: agent-desktop sandbox status NAME

This account is '$(id -un)': the host must have been told the same name (create with --set user=NAME; its own
user's name otherwise). Applications open only on the desktop of a user who is logged in: for starts without a
person, turn on System Settings > Users & Groups > Automatically log in as. Leave FileVault off, and use no Apple
Account, with which macOS may turn it on.
END
}

check_account
find_share
read_key
add_key
install_programs
request_permissions
warn_of_filevault
print_steps
