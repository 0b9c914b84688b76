"""What is told of an engine that does not go on."""

from __future__ import annotations

import threading
import time

import structlog

from tensorfold.engine.watchdog import Watchdog, stacks
from tensorfold.testing.waiting import until


def test_a_trouble_is_told_once_with_every_threads_stack_and_its_end_as_well() -> None:
    trouble: list[str | None] = [None]
    with structlog.testing.capture_logs() as logs:
        dog = Watchdog(lambda: trouble[0], 0.002)
        dog.start()
        trouble[0] = "a round has been running for 121 s"
        until(lambda: len(logs) == 1)
        time.sleep(0.02)
        trouble[0] = None
        until(lambda: len(logs) == 2)
        dog.stop()
    told, ended = logs
    assert (told["log_level"], told["problem"]) == ("critical", "a round has been running for 121 s")
    assert "thread tensorfold-watchdog" in told["stacks"] and "thread MainThread" in told["stacks"]
    assert ended["event"] == "the engine goes on"
    assert "tensorfold-watchdog" not in {thread.name for thread in threading.enumerate()}


def test_a_watchdog_that_never_began_can_be_stopped() -> None:
    Watchdog(lambda: None, 1.0).stop()


def test_stacks_show_where_a_thread_waits() -> None:
    gate = threading.Event()

    def somewhere_in_particular() -> None:
        gate.wait(10)

    thread = threading.Thread(target=somewhere_in_particular, name="waiting")
    thread.start()
    until(lambda: "somewhere_in_particular" in stacks())
    gate.set()
    thread.join()
