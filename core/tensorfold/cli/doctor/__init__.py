"""`tensorfold doctor`: looks at what a server needs, and says of each thing what to do.

| module | what it looks at |
|---|---|
| finding | what a look has found |
| software | Python, packages, plugins |
| machine | devices, memory, disk |
| exposure | the address, keys, the permissions of files |
| run | the command |
"""

from tensorfold.cli.doctor.run import command

__all__ = ["command"]
