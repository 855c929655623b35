"""`lab completion SHELL`.

Write the script to this file:
  bash   ~/.local/share/bash-completion/completions/lab
  zsh    ~/.zfunc/_lab, and in ~/.zshrc:
         fpath=(~/.zfunc $fpath); autoload -Uz compinit; compinit
  fish   ~/.config/fish/completions/lab.fish
Without bash-completion, source the file in ~/.bashrc.

Examples:
    # for bash with the package bash-completion
    lab completion bash > ~/.local/share/bash-completion/completions/lab
    # for fish
    lab completion fish > ~/.config/fish/completions/lab.fish
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final

from lab.base.converters import one_of
from lab.base.options import Argument, verb
from lab.verbs.printing import Lines, prints

SCRIPTS: Final[Mapping[str, str]] = {
    "bash": """\
_lab() {
    mapfile -t COMPREPLY < <(lab __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2> /dev/null)
    [[ ${COMPREPLY[0]-} != *= ]] || compopt -o nospace
}
complete -o default -o nosort -F _lab lab
""",
    "zsh": """\
#compdef lab
_lab() {
    local -a found=(${(f)"$(lab __complete "${(@)words[2,CURRENT]}" 2> /dev/null)"})
    compadd -V keys -S '' -- ${(M)found:#*=}
    compadd -V lab -- ${found:#*=}
    (( $#found )) || _files
}
if [[ $funcstack[1] == _lab ]]; then _lab; else compdef _lab lab; fi
""",
    "fish": """\
function __lab
    set -l now (commandline -ct)
    lab __complete (commandline -opc)[2..-1] "$now" 2> /dev/null | string match --regex '.+'
    or __fish_complete_path "$now"
end
complete -c lab -f -k -a '(__lab)'
""",
}
"""The script of each shell. If there is no candidate, it completes files."""


@verb
def completion(
    shell: Annotated[str, Argument("bash, zsh or fish", one_of("bash", "zsh", "fish"))],
) -> Lines:
    """Print the completion script of a shell."""
    return Lines(SCRIPTS[shell].splitlines)


command = prints(completion, json="")  # a script is text
