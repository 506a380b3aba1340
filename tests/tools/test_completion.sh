#!/bin/bash
# Shows that packaging/completion.bash finds its words in the help of the agent-desktop on PATH: the help is
# written for people, and a change of its layout must not empty the completion.
set -euo pipefail
top=$(cd "$(dirname "$0")/../.." && pwd)
AGENT_DESKTOP_HOME=$(mktemp -d "$HOME/.agent-desktop-completion.XXXXXX")
export AGENT_DESKTOP_HOME
trap 'rm -rf "$AGENT_DESKTOP_HOME"' EXIT
passed=0
failed=0
# shellcheck source=packaging/completion.bash
source "$top/packaging/completion.bash"

compopt() { :; } # there is no completion under way

# expect "WORDS" LINE...: what completes the last word of LINE.
expect() {
  local expected=$1
  shift
  COMP_WORDS=("$@")
  COMP_CWORD=$(($# - 1))
  _agent_desktop
  if [[ ${COMPREPLY[*]} == "$expected" ]]; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    echo "'$*' completes to '${COMPREPLY[*]}', not to '$expected'"
  fi
}

agent-desktop sandbox create demo >/dev/null
expect 'sandbox launch snapshot click type screenshot' agent-desktop ''
expect 'start status stop' agent-desktop sandbox s
expect 'run rm recover' agent-desktop sandbox r
expect 'demo' agent-desktop sandbox stop ''
expect '' agent-desktop sandbox create ''
expect '--wait' agent-desktop sandbox stop --w
expect 'env. from= image= ipsw= net= network= persistent= project= region= runtime= screen= snapshot= tag. team= timeout= user= vcpus=' \
  agent-desktop sandbox create x --set ''
expect 'env.' agent-desktop sandbox create x --set e
expect 'false true' agent-desktop sandbox create x --set persistent =
expect 'all none' agent-desktop sandbox create x --set network =
expect 'host none' agent-desktop sandbox create x --set net =
expect 'host' agent-desktop sandbox create x --set net = h
expect 'demo' agent-desktop sandbox create x --set from = ''
expect '' agent-desktop sandbox create x --set 'a/b' =
expect '--report' agent-desktop sandbox exec demo --r
expect '' agent-desktop sandbox exec demo -- laun
expect '--app' agent-desktop snapshot --a
agent-desktop sandbox rm demo >/dev/null

echo "$passed passed, $failed failed"
((failed == 0))
