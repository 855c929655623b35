"""The script for zsh."""

from __future__ import annotations

from typing import Final

from lab.cli.completion.grammar import Grammar, Line, Option, Value

_SCRIPT: Final = r"""#compdef lab
# zsh completion for lab, from `lab completion zsh`. It belongs here:
#   mkdir -p ~/.zfunc && lab completion zsh > ~/.zfunc/_lab
# and have in ~/.zshrc:
#   fpath=(~/.zfunc $fpath); autoload -Uz compinit; compinit

# Offers what lab itself answers to its last argument; the others are for compadd. Nothing of the
# answers is evaluated, and what is more than a plain word is left out.
_lab_ask() {
  setopt localoptions extendedglob
  local -a answers
  answers=(${(f)"$(command lab __complete $argv[-1] 2> /dev/null)"})
  answers=(${(M)answers:#[A-Za-z0-9._-]##})
  compadd "${(@)argv[1,-2]}" -o nosort -a answers
}

_lab_commands() {
  local -a commands
  commands=(
@COMMANDS@
  )
  _describe -t commands command commands
}

_lab() {
  local curcontext=$curcontext state line
  typeset -A opt_args
  _arguments -C \
    '(- *)'{-h,--help}'[every command]' \
    '(- *)--version[the version]' \
    '1: :_lab_commands' \
    '*:: :->rest'
  [[ $state == rest ]] || return
  curcontext=${curcontext%:*:*}:lab-$words[1]:
  case $words[1] in
    (help) _arguments '1: :_lab_commands' ;;
@CASES@
  esac
}

if [[ $funcstack[1] == _lab ]]; then
  _lab "$@"
else
  compdef _lab lab
fi
"""


def script(grammar: Grammar) -> str:
    """Write it."""
    commands = "\n".join(
        f"    {_quoted(_escaped(line.name) + ':' + line.summary)}" for line in grammar.values()
    )
    cases = "\n".join(_case(line) for line in grammar.values())
    return _SCRIPT.replace("@COMMANDS@", commands).replace("@CASES@", cases)


def _case(line: Line) -> str:
    specs = [_option(option) for option in line.options]
    specs += [
        _quoted(f"{position + 1}:{_escaped(value.shows)}:{_action(value)}")
        for position, value in enumerate(line.places)
    ]
    if line.hands_on:
        specs.append("'*:word for the program:_files'")
    joined = " \\\n        ".join(specs)
    return f"    ({line.name})\n      _arguments -s \\\n        {joined} ;;"


def _option(option: Option) -> str:
    told = f"[{_escaped(option.help)}]"
    value = option.value
    behind = f":{_escaped(value.shows)}:{_action(value)}" if value is not None else ""
    long = f"--{option.name}" + ("=" if value is not None else "")
    if not option.short:
        return _quoted(f"{long}{told}{behind}")
    short = f"-{option.short}" + ("+" if value is not None else "")
    others = f"(-{option.short} --{option.name})"
    return f"{_quoted(others)}{{{_quoted(short)},{_quoted(long)}}}{_quoted(told + behind)}"


def _action(value: Value) -> str:
    if value.folders:
        return "_files -/"
    if value.asks:
        return f"_lab_ask {value.asks}"
    words = f"({' '.join(value.words)})" if value.words else ""
    if value.files:
        # Both, where both can stand.
        listed = " ".join(value.words)
        return f' _alternative "words:word:({listed})" "files:file:_files"' if words else "_files"
    return words or " "


def _escaped(text: str) -> str:
    for character in ("\\", "[", "]", ":"):
        text = text.replace(character, f"\\{character}")
    return text


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
