#!/bin/sh
# provider.sh VERB [ARGUMENT...] - all that agent-desktop asks of Apple's tools; nothing else of it calls them.
#
# The answer is on stdout and the exit status 0, or there is another status and the reason is the last line of
# stderr, for a person. Paths are absolute. Exit statuses are those of sysexits(3):
#   64 wrong arguments   69 the developer tools are not usable   75 busy, try again   77 macOS forbids it   1 all else
#
#   host                                   what this machine is, as KEY=VALUE lines
#   system                                 the same without `tools`, which can take a while
#   build-vmhost SOURCE ENTITLEMENTS OUT   compiles and signs the VM host; what the tools say is passed on
#   build-helper SOURCE OUT                the same for the guest's helper
#   verify BINARY                          its signature is "whole" or "broken"; fails where nothing tells
#   attach DISK                            a raw disk image, nothing mounted; hdiutil's property list
#   containers                             all APFS containers; diskutil's property list
#   mount-data DEVICE DIRECTORY            an APFS volume: owners ignored, hidden from the Finder
#   unmount DIRECTORY                      tries again while it is busy, at last by force
#   detach DEVICE                          the same for an attached disk
#   attached                               all attached disk images; hdiutil's property list
#   arp                                    the host's neighbours; two seconds at most
#
# AGENT_DESKTOP_DHCPD_LEASES names another file of leases than bootpd(8)'s own.
set -u

PATH=${PATH:+$PATH:}/usr/bin:/bin:/usr/sbin:/sbin
LC_ALL=C # messages of tools are looked at
export PATH LC_ALL

readonly E_USAGE=64 E_TOOLS=69 E_BUSY=75 E_FORBIDDEN=77
readonly VIRTUALIZATION=com.apple.security.virtualization

newline='
'
said= # what the last tool has complained about
new=  # an unfinished file

# ---- saying what is wrong ----

fail() { # STATUS CLAUSE
  printf '%s\n' "$2" >&2
  exit "$1"
}

want() { # COUNT-WANTED COUNT-GIVEN
  [ "$1" -eq "$2" ] || fail $E_USAGE "the verb '$verb' takes $1 arguments, not $2"
}

want_path() {
  case $1 in
    /*) ;;
    *) fail $E_USAGE "the verb '$verb' takes absolute paths, not '$1'" ;;
  esac
}

# Runs a tool. Its stdout is ours, its stderr goes into $said.
ask() {
  { said=$("$@" 2>&1 >&3 3>&-); } 3>&1
}

# The last line of $said, without the name that tools put in front, or the tool's status when it said nothing.
reason() { # TOOL STATUS
  last=${said##*"$newline"}
  last=${last#"$1: "}
  printf '%s\n' "${last:-it ended with status $2 and said nothing}"
}

# $said as a whole, for a log, and then what it comes to. hdiutil's status can be an errno: EBUSY 16, EAGAIN 35.
fail_tool() { # TOOL STATUS WHAT-IT-COULD-NOT
  case $1:$2:$said in
    hdiutil:16:* | hdiutil:35:* | *'Resource temporarily unavailable'* | *'Resource busy'*) code=$E_BUSY ;;
    *'Operation not permitted'*) code=$E_FORBIDDEN ;;
    *) code=1 ;;
  esac
  [ -z "$said" ] || printf '%s\n' "$said" >&2
  fail $code "$1 cannot $3: $(reason "$1" "$2")"
}

# ---- the host ----

is_one() { # a sysctl name: 1, or a 0 that may also mean that this kernel does not know it
  if [ "$(sysctl -n "$1" 2>/dev/null)" = 1 ]; then echo 1; else echo 0; fi
}

# Every Mac has an xcrun and a swiftc that only look for the real ones, and without any they open a dialog on the
# screen. xcode-select never does; its directory may be one that an upgrade of the system has emptied.
tools_state() {
  if ! xcode-select -p >/dev/null 2>&1; then
    said='xcode-select: the Command Line Tools are not installed'
    tools=absent
  elif said=$(xcrun --find swiftc 2>&1 >/dev/null); then
    tools=ready
  else
    case $?:$said in
      69:* | *licen[cs]e* | *Licen[cs]e*) tools=licence ;;
      *) tools=stale ;;
    esac
  fi
}

describe_system() {
  want 0 $#
  system=$(uname -s) || fail 1 'uname cannot tell which system this is'
  printf 'system=%s\n' "$system"
  printf 'leases=%s\n' "${AGENT_DESKTOP_DHCPD_LEASES:-/var/db/dhcpd_leases}"
  [ "$system" = Darwin ] || return 0
  version=$(sw_vers -productVersion) || fail 1 'sw_vers cannot tell the version of macOS'
  # Not by uname -m: it says x86_64 to a process that Rosetta translates.
  printf 'arm64=%s\n' "$(is_one hw.optional.arm64)"
  printf 'virtual=%s\n' "$(is_one kern.hv_vmm_present)"
  printf 'version=%s\n' "$version"
}

host() {
  describe_system "$@"
  [ "$system" = Darwin ] || return 0
  tools_state
  printf 'tools=%s\n' "$tools"
}

# ---- building ----

fail_licence() {
  fail $E_TOOLS 'the licence of Xcode is not accepted; run: sudo xcodebuild -license accept'
}

need_tools() {
  tools_state
  [ "$tools" = ready ] && return
  [ -z "$said" ] || printf '%s\n' "$said" >&2
  case $tools in
    absent) fail $E_TOOLS 'the Xcode Command Line Tools are missing; run: xcode-select --install' ;;
    licence) fail_licence ;;
    *) fail $E_TOOLS 'the developer tools are gone from where macOS looks for them; run: xcode-select --install' ;;
  esac
}

drop_new() {
  [ -z "$new" ] || rm -f "$new"
}

# A new file that is renamed over the old: the kernel remembers a signature by file, so that one which is
# overwritten in place may be killed when it is started next.
begin_new() { # OUT
  trap drop_new EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
  new=$1.new.$$
}

compile() { # SOURCE
  target=
  [ "$(uname -s)" != Darwin ] || target='-target arm64-apple-macos13.0'
  # shellcheck disable=SC2086 # two words, or none
  swiftc -O $target -o "$new" "$1"
  case $? in
    0) [ -f "$new" ] || fail 1 "swiftc has compiled '$1' and left no file" ;;
    69) fail_licence ;;
    *) fail 1 "swiftc cannot compile '$1'" ;;
  esac
}

sign() { # CODESIGN-OPTION...; "-" is ad hoc, and --force because the linker has signed the file already
  codesign --force --sign - "$@" "$new" || fail 1 "codesign cannot sign '$new'"
  verify_signature "$new"
}

verify_signature() {
  ask codesign --verify "$1" || fail_tool codesign $? "confirm the signature of '$1'"
}

# Without it the framework calls every machine invalid, and does not say why.
verify_entitlement() {
  entitlements=$(codesign --display --entitlements - --xml "$1") ||
    fail 1 "codesign cannot show the entitlements of '$1'"
  case $entitlements in
    *"$VIRTUALIZATION"*) ;;
    *) fail 1 "codesign has signed '$1' without the entitlement $VIRTUALIZATION" ;;
  esac
}

end_new() { # OUT
  if ! chmod 700 "$new" || ! mv -f "$new" "$1"; then
    fail 1 "'$1' cannot be put in its place"
  fi
  new=
}

build_vmhost() {
  want 3 $#
  want_path "$1"
  want_path "$2"
  want_path "$3"
  need_tools
  begin_new "$3"
  compile "$1"
  sign --entitlements "$2"
  verify_entitlement "$new"
  end_new "$3"
}

build_helper() {
  want 2 $#
  want_path "$1"
  want_path "$2"
  need_tools
  begin_new "$2"
  compile "$1"
  sign
  end_new "$2"
}

verify() {
  want 1 $#
  want_path "$1" # codesign takes what begins with a digit for a process
  if ask codesign --verify "$1"; then
    echo whole
    return
  else
    status=$?
  fi
  # codesign(1): 1 is its verdict, other statuses are of calls and of shells
  case $status:$said in
    *'Operation not permitted'*) ;;
    1:*) echo broken && return ;;
  esac
  fail_tool codesign $status "verify the signature of '$1'"
}

# ---- disk images ----

attach() {
  want 1 $#
  want_path "$1"
  # The image key says "raw" whatever the file is called. Not mounted: Disk Arbitration would mount all volumes.
  ask hdiutil attach -nomount -noverify -noautofsck -imagekey diskimage-class=CRawDiskImage -plist "$1" ||
    fail_tool hdiutil $? "attach '$1'"
}

containers() {
  want 0 $#
  ask diskutil apfs list -plist || fail_tool diskutil $? 'list the APFS containers'
}

device() {
  case $1 in
    /dev/*) printf '%s\n' "$1" ;;
    *) printf '/dev/%s\n' "$1" ;;
  esac
}

# Owners ignored: files of the guest's root may then be written without being root here.
mount_data() {
  want 2 $#
  want_path "$2"
  ask mount -t apfs -o noowners,nobrowse "$(device "$1")" "$2" || fail_tool mount $? "mount the volume $1"
}

# Spotlight starts to read a volume when it is written to first, and keeps it busy for a moment.
again() { # COMMAND...: four times, a second apart
  for pause in 1 1 1 0; do
    ask "$@" >/dev/null && return
    sleep $pause
  done
  return 1
}

unmount() {
  want 1 $#
  want_path "$1"
  again umount "$1" || ask umount -f "$1" || fail_tool umount $? "unmount '$1'"
}

detach() {
  want 1 $#
  disk=$(device "$1")
  again hdiutil detach "$disk" >/dev/null || ask hdiutil detach "$disk" -force >/dev/null ||
    fail_tool hdiutil $? "detach $disk"
}

attached() {
  want 0 $#
  ask hdiutil info -plist || fail_tool hdiutil $? 'list the attached disk images'
}

# ---- the network ----

# The one who counts the seconds must not keep our stdout open: who reads it waits for its end.
arp_table() {
  want 0 $#
  arp -an 2>/dev/null &
  asked=$!
  (
    trap 'kill $pause; exit' TERM
    sleep 2 &
    pause=$!
    wait $pause
    kill $asked
  ) >/dev/null 2>&1 &
  clock=$!
  wait $asked
  status=$?
  kill $clock 2>/dev/null
  case $status in
    0) ;;
    143) fail 1 'arp has not answered within two seconds' ;;
    *) fail 1 "arp has ended with status $status" ;;
  esac
}

# ---- the verbs ----

verb=${1-}
[ $# -eq 0 ] || shift
case $verb in
  system) describe_system "$@" ;;
  host | attach | containers | unmount | detach | attached | verify) "$verb" "$@" ;;
  build-vmhost) build_vmhost "$@" ;;
  build-helper) build_helper "$@" ;;
  mount-data) mount_data "$@" ;;
  arp) arp_table "$@" ;;
  '') fail $E_USAGE 'provider.sh takes a verb; they are listed at its top' ;;
  *) fail $E_USAGE "provider.sh has no verb '$verb'" ;;
esac
