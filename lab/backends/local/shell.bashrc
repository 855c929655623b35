# A shell in a task's namespaces: the user's own, with the agents' `python` first and the task in the prompt.
lab_bin="${PATH%%:*}"
if [ -f ~/.bashrc ]; then . ~/.bashrc; fi
PATH="$lab_bin:$PATH"
unset lab_bin
PS1='$LAB_TASK:\w\$ '
unset PROMPT_COMMAND
