"""The `tensorfold` program.

| module | what it does |
|---|---|
| program | the commands, ours and the plugins'; errors as one line and an exit code |
| null_device | a stream that nobody reads any more |
| early | what has to be known before plugins load: `--plugin`, `--dialect`, `--backend`, `--config` |
| options | settings as flags |
| serve, assemble, application, backends, startup | a server: its command, its wiring, what it says while it starts |
| chat | a conversation in the terminal |
| bench | a load generator |
| check, new | the plugin author's kit: contracts run, folders written |
| inspect_request, replay | what `--log-requests` wrote: shown, and asked again |
| models, listing, show_config, doctor | what is there, what is installed, what is configured, what is wrong |
| service | a server that the system keeps |
| completion_script | what a shell needs to complete command lines |
| client, sse, completion, keys | HTTP, event streams, replies and the key, for chat and bench |

Nothing heavy is imported before a command that needs it runs: `tensorfold --help` must stay quick.
"""

from __future__ import annotations

import os
import sys

__all__ = ["main"]


def main() -> None:
    """The console script."""
    from tensorfold.cli.null_device import silence
    from tensorfold.cli.program import run

    code = run(sys.argv[1:], os.environ)
    try:
        sys.stderr.flush()
    except OSError:
        # Its disk is full or its reader gone.
        silence(sys.stderr)
    sys.exit(code)
