"""The script for fish 3 and later."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from lab.cli.completion.grammar import Grammar, Line, Option, Value

_HEAD: Final = r"""# fish completion for lab, from `lab completion fish`. It belongs here:
#   lab completion fish > ~/.config/fish/completions/lab.fish

# What lab itself answers; fish takes it line by line, and what is more than a plain word is left
# out.
function __lab_ask
    command lab __complete $argv[1] 2>/dev/null | string match --regex '^[A-Za-z0-9._-]+$'
end

# The words that are typed already: the command and what has its place behind it, without flags,
# and without the values of the flags that are given as arguments.
function __lab_words
    set -l pending ''
    for word in (commandline -opc)[2..-1]
        if test -n "$pending"
            set pending ''
        else if contains -- $word $argv
            set pending $word
        else if not string match --quiet -- '-*' $word
            echo -- $word
        end
    end
end

# Whether no command is typed yet.
function __lab_no_command
    test (count (__lab_words)) -eq 0
end

# Whether this command is typed.
function __lab_is
    set -l words (__lab_words)
    test "$words[1]" = $argv[1]
end

# Whether so many words have their place behind this command; more arguments are flags with values.
function __lab_place
    set -l words (__lab_words $argv[3..-1])
    test "$words[1]" = $argv[1]; and test (count $words) -eq (math $argv[2] + 1)
end

complete -c lab -f
complete -c lab -n __lab_no_command -s h -l help -d 'every command'
complete -c lab -n __lab_no_command -l version -d 'the version'
complete -c lab -n __lab_no_command -a help -d 'usage and examples of one command'
"""


def script(grammar: Grammar) -> str:
    """Write it."""
    lines = [
        f"complete -c lab -n __lab_no_command -a {line.name} -d {_quoted(line.summary)}"
        for line in grammar.values()
    ]
    lines.append(f"complete -c lab -n '__lab_place help 0' -a {_quoted(' '.join(grammar))}")
    for line in grammar.values():
        lines += ["", *_command(line)]
    return _HEAD + "\n".join(lines) + "\n"


def _command(line: Line) -> Iterator[str]:
    valued = " ".join(line.valued())
    for position, value in enumerate(line.places):
        offers = _offers(value)
        if offers:
            place = f"__lab_place {line.name} {position} {valued}".strip()
            yield f"complete -c lab -n {_quoted(place)} {offers}"
    for option in line.options:
        yield f"complete -c lab -n '__lab_is {line.name}' {_option(option)}"


def _option(option: Option) -> str:
    words = [f"-l {option.name}"]
    if option.short:
        words.insert(0, f"-s {option.short}")
    if option.value is not None:
        words.append(f"-r {_offers(option.value) or '-f'}")
    return " ".join([*words, "-d", _quoted(option.help)])


def _offers(value: Value) -> str:
    """How a value is offered; "" for none."""
    listed = list(value.words)
    if value.asks:
        listed.append(f"(__lab_ask {value.asks})")
    if value.folders:
        listed.append("(__fish_complete_directories)")
    offers = f"-k -a {_quoted(' '.join(listed))}" if listed else ""
    if value.files:
        return f"-F {offers}".strip()
    return f"-f {offers}" if offers else ""


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
