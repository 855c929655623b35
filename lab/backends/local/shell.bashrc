# A shell in a task's namespaces: the user's own, with the agents' `python` first and the task in the prompt.
if [ -f ~/.bashrc ]; then . ~/.bashrc; fi
PATH="$LAB_PYTHON_BIN:$PATH"
PS1='$LAB_TASK:\w\$ '
unset PROMPT_COMMAND
