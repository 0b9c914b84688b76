"""What this backend adds to the command line."""

from __future__ import annotations

import click

from tensorfold.contracts.commands import Command

__all__ = ["kernels_command"]


def kernels_command() -> Command:
    """`tensorfold bench kernels`."""
    return Command(
        click.Command(
            "kernels",
            callback=_run,
            params=[
                click.Option(["--threads"], type=click.IntRange(1), help="By default the cores that may be used."),
                click.Option(["--json", "as_json"], is_flag=True, help="For programs."),
            ],
            help="Measure the cpu backend's kernels against this machine's memory and arithmetic.",
        ),
        under="bench",
    )


def _run(threads: int | None, as_json: bool) -> None:
    from tensorfold.contracts.backend import BackendSettings
    from tensorfold.observe import configure_logs
    from tensorfold_backend_cpu.probe import CpuBackend

    configure_logs()
    session = CpuBackend().open(BackendSettings(threads=threads))
    # Imported when it is asked for: every command imports this module, and numba takes a second.
    from tensorfold_backend_cpu.measuring import measure, table

    try:
        if not as_json:
            click.echo(session.device)
        click.echo(table(measure(session), as_json=as_json))
    finally:
        session.close()
