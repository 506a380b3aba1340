# Completion of agent-desktop for bash. Install it as /usr/share/bash-completion/completions/agent-desktop,
# or source it. All words are read from the program's own --help, so that they cannot differ from it.
# shellcheck shell=bash

# What `agent-desktop ARGS --help` has that matches an extended regular expression.
_agent_desktop_help() { # PATTERN ARGS...
  local pattern=$1
  shift
  command agent-desktop "$@" --help 2>/dev/null | grep -oE -- "$pattern" | tr -d ' ' | sort -u
}

_agent_desktop_names() {
  command agent-desktop sandbox list 2>/dev/null | grep -oE '"name":"[a-z0-9-]+"' | cut -d '"' -f 4
}

_agent_desktop() {
  local word=${COMP_WORDS[COMP_CWORD]} candidates=''
  local before=("${COMP_WORDS[@]:1:COMP_CWORD-1}") last=''
  ((COMP_CWORD < 2)) || last=${before[-1]}
  COMPREPLY=()
  # Behind "--" the words belong to the command inside.
  [[ " ${before[*]} " != *" -- "* ]] || return 0
  case "${#before[@]}:${before[0]:-}:$last" in
    0:*)
      candidates="sandbox $(command agent-desktop --help |
        sed -nE '/^Commands on this desktop/,/^$/s/^  ([a-z]+) .*/\1/p')"
      ;;
    1:sandbox:*)
      candidates=$(command agent-desktop sandbox --help | sed -nE 's/^  sandbox ([a-z]+) .*/\1/p')
      ;;
    *:sandbox:--set)
      candidates=$(_agent_desktop_help '^  [a-z]+=' sandbox "${before[1]}")
      compopt -o nospace
      ;;
    *:sandbox:*)
      if [[ $word == -* ]]; then
        candidates=$(_agent_desktop_help '--[a-z]+' sandbox "${before[1]}")
      elif [[ ${#before[@]} == 2 && ${before[1]} != @(install|create|list) ]]; then
        candidates=$(_agent_desktop_names)
      fi
      ;;
    *) [[ $word != -* ]] || candidates=$(_agent_desktop_help '--[a-z]+' "${before[0]}") ;;
  esac
  mapfile -t COMPREPLY < <(compgen -W "$candidates" -- "$word")
}

complete -o default -F _agent_desktop agent-desktop
