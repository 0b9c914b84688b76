"""`tensorfold service`: a server that the system starts, restarts and stops.

| module | what it does |
|---|---|
| arguments | the command line that the service runs, checked, with whole paths and without secrets |
| programs | runs the system's own programs |
| systemd | a user unit on Linux |
| launchd | a LaunchAgent on a Mac |
| run | the commands |
"""

from tensorfold.cli.service.run import command

__all__ = ["command"]
