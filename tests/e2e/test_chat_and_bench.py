"""Our own clients against a real server: in a terminal, through a pipe, and as a load."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pexpect
import pytest

PROGRAM = [sys.executable, "-m", "tensorfold"]


@pytest.fixture
def terminal(server: Any) -> Iterator[pexpect.spawn[str]]:
    """`tensorfold chat` with the shared server, in a terminal without colours."""
    arguments = [*PROGRAM[1:], "chat", "--url", server.url, "--reply-limit", "200"]
    child = pexpect.spawn(
        PROGRAM[0],
        arguments,
        encoding="utf-8",
        timeout=60,
        env={**os.environ, "TERM": "dumb"},
        dimensions=(40, 200),
        preexec_fn=_heed_ctrl_c,
    )
    child.expect("> ")
    yield child
    child.close(force=True)


def test_ctrl_c_stops_a_reply_and_not_the_conversation(terminal: pexpect.spawn[str], server: Any) -> None:
    terminal.sendline("Write a long story about a whale.")
    # The terminal shows what was typed; the reply comes behind it.
    terminal.expect(r"whale\.\r\n")
    terminal.expect(r"\w+ \w+")
    terminal.sendintr()
    terminal.expect(r"\[stopped.*first after [0-9.]+ s")
    terminal.expect("> ")
    terminal.sendintr()
    terminal.expect("Ctrl-D or /exit leaves")
    terminal.sendline("/nonsense")
    terminal.expect("There is no /nonsense")
    terminal.sendline("/reset")
    terminal.expect("begins anew")
    terminal.sendline("/exit")
    terminal.expect(pexpect.EOF)
    terminal.close()
    assert terminal.exitstatus == 0
    assert "\x1b[" not in (terminal.before or "")


def test_a_whole_reply_ends_with_its_figures_and_ctrl_d_leaves(terminal: pexpect.spawn[str]) -> None:
    terminal.sendline("Answer in one word: what colour is the sky?")
    terminal.expect(r"\[\d+ tokens?, ([0-9.]+ tokens/s, )?first after [0-9.]+ s")
    terminal.expect("> ")
    terminal.sendeof()
    terminal.expect(pexpect.EOF)
    terminal.close()
    assert terminal.exitstatus == 0


def test_a_pipe_gets_the_replies_alone_on_stdout(server: Any) -> None:
    done = subprocess.run(
        [*PROGRAM, "chat", "--url", server.url, "--reply-limit", "4"],
        input="Say hello.\n\n/help\nSay goodbye.\n",
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stdout.strip()
    assert "tokens/s" not in done.stdout
    assert done.stderr.count("cut at the limit") == 2
    assert "/reset" in done.stderr


def test_a_conversation_may_have_a_server_of_its_own() -> None:
    done = subprocess.run(
        [*PROGRAM, "chat", *_backend(), "--context", "512", "--parallel", "1", "--reply-limit", "3"],
        input="Say hello.\n",
        capture_output=True,
        text=True,
        timeout=180,
        env={**os.environ, "TENSORFOLD_PORT": "1"},
        check=True,
    )
    assert done.stdout.strip()
    assert "SmolLM2-135M-Instruct.Q4_1 at http://127.0.0.1:" in done.stderr


def test_a_server_that_is_not_there_is_told_in_one_line() -> None:
    done = subprocess.run(
        [*PROGRAM, "chat", "--url", "http://127.0.0.1:1"],
        input="",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr == "tensorfold: no server answers at http://127.0.0.1:1: Connection refused\n"


def test_a_load_at_once_is_measured_and_printed_as_json(server: Any) -> None:
    figures = bench("--url", server.url, "--requests", "4", "--concurrency", "2", "--prompt-tokens", "50")
    (only,) = figures["servers"]
    assert (only["requests"], only["failed"]) == (4, 0)
    assert only["reply_tokens"] == 4 * 6
    assert abs(only["prompt_tokens"] / 4 - 50) <= 5
    assert 0 < only["first_token_ms"]["p50"] <= only["first_token_ms"]["p99"] <= only["end_to_end_ms"]["p99"]
    assert only["between_tokens_ms"]["mean"] > 0


def test_a_load_at_a_rate_is_compared_with_a_second_server(server: Any) -> None:
    figures = bench(
        "--url", server.url, "--against", server.url, "--requests", "4", "--rate", "4", "--endpoint", "chat"
    )
    assert [each["requests"] for each in figures["servers"]] == [4, 4]
    assert figures["ratios"]["reply tokens a request"] == 1
    assert figures["ratios"]["first token p50, ms"] > 0


def test_requests_that_fail_are_counted_and_told(server: Any) -> None:
    done = subprocess.run(
        [*PROGRAM, "bench", "--url", server.url, "--requests", "2", "--reply-tokens", "100000"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1
    assert "0 of 2" in done.stdout
    assert "maximum context length" in done.stderr


def bench(*arguments: str) -> dict[str, Any]:
    """The JSON of one run with short replies."""
    done = subprocess.run(
        [*PROGRAM, "bench", "--json", "--reply-tokens", "6", *arguments],
        capture_output=True,
        text=True,
        timeout=180,
        check=True,
    )
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def _backend() -> list[str]:
    return os.environ.get("TENSORFOLD_TEST_SERVE", "").split()


def _heed_ctrl_c() -> None:
    """Whoever runs the tests in the background has them start with Ctrl-C ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
