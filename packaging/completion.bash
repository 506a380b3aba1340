# Completion of agent-desktop for bash. Install it as /usr/share/bash-completion/completions/agent-desktop,
# or source it (a bash newer than macOS's own 3.2). All words are read from the program's own --help, so that they
# cannot differ from it.
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

_agent_desktop_providers() {
  command agent-desktop sandbox create --help 2>/dev/null | sed -nE 's/^--set of the ([a-z]+) provider.*/\1/p'
}

# What may stand behind `--set KEY=`: the words of "net=host|none" in the help, or sandboxes for "from=SANDBOX".
_agent_desktop_values() { # COMMAND KEY
  local values
  values=$(command agent-desktop sandbox "$1" --help 2>/dev/null | sed -nE "s/^  $2=([^ ]+) .*/\1/p")
  if [[ $values == *SANDBOX* ]]; then
    _agent_desktop_names
  else
    tr '|' '\n' <<<"$values" | grep -xE '[a-z]+' | sort -u
  fi
}

_agent_desktop() {
  local word=${COMP_WORDS[COMP_CWORD]} candidates=''
  local before=("${COMP_WORDS[@]:1:COMP_CWORD-1}") last=''
  [[ $word != = ]] || { before+=("="); word=; } # the cursor is right behind it, and readline completes from there
  ((${#before[@]} == 0)) || last=${before[-1]}
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
      candidates=$(_agent_desktop_help '^  [a-z]+[=.]' sandbox "${before[1]}")
      compopt -o nospace
      ;;
    *:sandbox:--provider) candidates=$(_agent_desktop_providers) ;;
    *:sandbox:=)
      if [[ ${before[-2]} == --provider ]]; then
        candidates=$(_agent_desktop_providers)
      elif [[ ${before[-2]} =~ ^[a-z]+$ ]]; then
        candidates=$(_agent_desktop_values "${before[1]}" "${before[-2]}")
      fi
      ;;
    *:sandbox:*)
      if [[ $word == -* ]]; then
        candidates=$(_agent_desktop_help '--[a-z]+' sandbox "${before[1]}")
      elif [[ ${#before[@]} == 2 && ${before[1]} == install ]]; then
        candidates=$(_agent_desktop_providers)
      elif [[ ${#before[@]} == 2 && ${before[1]} != @(create|list) ]]; then
        candidates=$(_agent_desktop_names)
      fi
      ;;
    *) [[ $word != -* ]] || candidates=$(_agent_desktop_help '--[a-z]+' "${before[0]}") ;;
  esac
  mapfile -t COMPREPLY < <(compgen -W "$candidates" -- "$word")
}

complete -o default -F _agent_desktop agent-desktop
