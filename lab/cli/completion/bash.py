"""The script for bash 4.4 and later; it needs no bash-completion beside it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from lab.cli.completion.grammar import Grammar, Line, Value

_SCRIPT: Final = r"""# bash completion for lab, from `lab completion bash`. It belongs here:
#   mkdir -p ~/.local/share/bash-completion/completions
#   lab completion bash > ~/.local/share/bash-completion/completions/lab
# or, where the package bash-completion is not installed, source this file in ~/.bashrc.

# Offers those of its arguments that begin like the word under the cursor. Nothing is evaluated,
# and what is more than a plain word is left out.
_lab_offer() {
    local word
    for word in "$@"; do
        if [[ $word == "$current"* && $word != *[!A-Za-z0-9._-]* ]]; then
            COMPREPLY+=("$word")
        fi
    done
}

# Offers what lab itself answers.
_lab_ask() {
    local answers
    compopt -o nosort
    mapfile -t answers < <(command lab __complete "$1" 2> /dev/null)
    _lab_offer "${answers[@]}"
}

_lab() {
    local current=${COMP_WORDS[COMP_CWORD]} command='' pending='' place=0 at word
    COMPREPLY=()
    # To bash, --flag=value is three words.
    for ((at = 1; at < COMP_CWORD; at++)); do
        word=${COMP_WORDS[at]}
        if [[ $word == = ]]; then
            pending=${pending:-switch}
        elif [[ -n $pending ]]; then
            pending=''
        elif [[ $word == -- ]]; then
            return  # what follows is the program's own: files, as anywhere else
        elif [[ $word == -* ]]; then
            word=${word//_/-}
            case "$command $word" in
                @VALUED@)
                    pending=$word ;;
            esac
        elif [[ -z $command ]]; then
            command=$word
        else
            place=$((place + 1))
        fi
    done
    if [[ $current == = ]]; then
        pending=${pending:-switch}
        current=''
    fi
    if [[ $pending == switch ]]; then
        compopt +o default
        _lab_offer true false
    elif [[ -n $pending ]]; then
        case "$command $pending" in
@VALUES@
            *) compopt +o default ;;
        esac
    elif [[ -z $command ]]; then
        compopt +o default
        _lab_offer @COMMANDS@
    elif [[ $current == -* ]]; then
        compopt +o default
        case "$command" in
@FLAGS@
        esac
    else
        case "$command $place" in
@PLACES@
            *) compopt +o default ;;
        esac
    fi
}

complete -o default -F _lab lab
"""


def script(grammar: Grammar) -> str:
    """Write it."""
    lines = list(grammar.values())
    parts = {
        "VALUED": " | ".join(
            f"'{line.name} {_dashed(name)}'" for line in lines for name in line.valued()
        ),
        "VALUES": "\n".join(_values(lines)),
        "COMMANDS": " ".join([*grammar, "help", "--help", "--version"]),
        "FLAGS": "\n".join(
            f"            {line.name}) _lab_offer {' '.join(_flags(line))} ;;" for line in lines
        ),
        "PLACES": "\n".join(_places(lines, list(grammar))),
    }
    text = _SCRIPT
    for name, part in parts.items():
        text = text.replace(f"@{name}@", part)
    return text


def _values(lines: Iterable[Line]) -> Iterator[str]:
    cases: dict[str, list[str]] = {}
    for line in lines:
        for name, value in line.valued().items():
            action = _action(value)
            if action is not None:
                cases.setdefault(action, []).append(f"'{line.name} {_dashed(name)}'")
    for action, names in cases.items():
        yield f"            {' | '.join(names)})\n                {action} ;;"


def _places(lines: Iterable[Line], commands: list[str]) -> Iterator[str]:
    offer = f"compopt +o default; _lab_offer {_spaced(commands)}"
    yield f"            'help 0')\n                {offer} ;;"
    for line in lines:
        for position, value in enumerate(line.places):
            action = _action(value)
            if action is not None:
                yield f"            '{line.name} {position}')\n                {action} ;;"


def _action(value: Value) -> str | None:
    """What offers a value; nothing to do leaves files to readline, None is for offering nothing."""
    actions = [] if value.files else ["compopt +o default"]
    if value.folders:
        actions.append("compopt -o dirnames")
    if value.words:
        actions.append(f"_lab_offer {_spaced(value.words)}")
    if value.asks:
        actions.append(f"_lab_ask {value.asks}")
    if actions == ["compopt +o default"]:
        return None
    return "; ".join(actions) or ":"


def _flags(line: Line) -> Iterator[str]:
    for option in line.options:
        yield f"--{option.name}"
        if option.short:
            yield f"-{option.short}"


def _spaced(words: Iterable[str]) -> str:
    return " ".join(words)


def _dashed(name: str) -> str:
    return name.replace("_", "-")
