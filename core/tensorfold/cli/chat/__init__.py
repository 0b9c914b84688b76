"""`tensorfold chat`: a conversation in the terminal, with a running server or one of its own.

| module | what it does |
|---|---|
| run | the command |
| talk | the conversation: what is typed, what is said, Ctrl-C |
| own_server | a server for this conversation alone |
"""

from tensorfold.cli.chat.run import command

__all__ = ["command"]
