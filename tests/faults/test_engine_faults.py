"""Faults in the model, the device and the tokenizer: one request gets its dialect's error, the others their replies."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tensorfold.engine.settings import EngineSettings
from tensorfold.errors import BackendError
from tensorfold.testing.scripted import Script, Stall, raises
from tensorfold.testing.toy_tokenizer import ToyTokenizer
from tensorfold.testing.waiting import until

from .rig import ASKS, REPLY, Ask, Rig, error_of, rig, script, text_of

EVERY = pytest.mark.parametrize("name", ASKS)
HOW = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])

FAULTS: dict[str, dict[str, Any]] = {
    "an exception": {"at": {3: raises(RuntimeError("the kernel of /home/me failed"))}},
    "an exception in the prompt": {"at": {-1: raises(RuntimeError("the kernel of /home/me failed"))}},
    "no numbers": {"nan_at": 3},
    "no memory on the host": {"at": {3: raises(MemoryError())}},
    "no memory on the device": {"at": {3: raises(BackendError("out of memory at /home/me"))}},
}


class Beside(threading.Thread):
    """A request that runs in a thread of its own."""

    def __init__(self, rig: Rig, ask: Ask, prompt: str) -> None:
        super().__init__()
        self._rig, self._ask, self._prompt = rig, ask, prompt
        self.answer: httpx.Response | None = None
        self.start()

    def run(self) -> None:
        self.answer = self._ask.post(self._rig.client, self._prompt, stream=True)

    def text(self) -> str:
        """What it was answered with."""
        self.join(60)
        assert self.answer is not None
        assert self.answer.status_code == 200
        return text_of(self.answer)


def threads_by_pool() -> set[str]:
    """Names of threads; those of a pool, which starts them one by one, have one."""
    return {thread.name.rpartition("_")[0] or thread.name for thread in threading.enumerate()}


@EVERY
@HOW
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_the_model_costs_one_request(name: str, stream: bool, fault: str) -> None:
    """Its caller is told in its dialect, a reply that was half way goes on, health counts it, the next one is served."""
    ask, other, stall = ASKS[name], ASKS["chat"], Stall()
    scripts = [script(ask, "boom", **FAULTS[fault]), script(other, "steady", at={2: stall}), script(ask, "next")]
    with rig(scripts) as server:
        steady = Beside(server, other, "steady")
        until(stall.entered.is_set)
        boom = Beside(server, ask, "boom") if stream else None
        if boom is None:
            # The step that waits has to go on for this one to begin.
            stall.release.set()
            answer = ask.post(server.client, "boom", stream=False)
            assert answer.status_code == 500
        else:
            until(lambda: server.engine.status().running + server.engine.status().waiting == 2)
            stall.release.set()
            boom.join(60)
            assert boom.answer is not None
            answer = boom.answer
        assert "engine failed this request" in error_of(answer) or "not finite" in error_of(answer)
        assert "/home/me" not in answer.text, "what the backend says is for the log"
        assert steady.text() == REPLY.decode()
        status, health = server.health()
        assert (status, health["status"], health["requests_failed"]) == (200, "ok", 1)
        assert health["last_failure"]["error"] and health["last_failure"]["doing"]
        assert text_of(ask.post(server.client, "next", stream=stream)) == REPLY.decode()
        server.idle()


def test_a_step_that_does_not_return_is_told_by_health_until_it_does() -> None:
    """503 with the reason while it hangs; then every reply ends as if nothing had been, without a restart."""
    ask, stall = ASKS["chat"], Stall()
    settings = EngineSettings(round_limit=0.01)
    with rig([script(ask, "slow", at={2: stall}), script(ask, "next")], settings=settings) as server:
        slow = Beside(server, ask, "slow")
        until(stall.entered.is_set)
        until(lambda: server.health()[0] == 503)
        _, health = server.health()
        assert health["status"] == "unhealthy"
        assert "a round of replies has been running" in health["problem"]
        stall.release.set()
        assert slow.text() == REPLY.decode()
        until(lambda: server.health()[0] == 200)
        assert text_of(ask.post(server.client, "next", stream=False)) == REPLY.decode()


class Mute(ToyTokenizer):
    """Fails over one text, and cannot spell one token."""

    def encode(self, text: str, *, add_special_tokens: bool, parse_special: bool) -> list[int]:
        if "unspeakable" in text:
            raise RuntimeError("a fault of /home/me/tokenizer")
        return super().encode(text, add_special_tokens=add_special_tokens, parse_special=parse_special)

    def token_bytes(self, token: int) -> bytes:
        if token == ord("Q"):
            raise KeyError(token)
        return super().token_bytes(token)


@EVERY
@HOW
def test_a_tokenizer_that_fails_over_a_prompt_costs_that_request(name: str, stream: bool) -> None:
    """Before anything was sent: a 500 in the dialect's envelope, also where a stream was asked for."""
    ask = ASKS[name]
    with rig([script(ask, "next")], tokenizer=Mute()) as server:
        answer = ask.post(server.client, "unspeakable", stream=stream)
        assert answer.status_code == 500
        assert error_of(answer)
        assert "/home/me" not in answer.text
        assert text_of(ask.post(server.client, "next", stream=stream)) == REPLY.decode()
        server.idle()


@EVERY
@HOW
def test_a_token_without_a_spelling_costs_that_request(name: str, stream: bool) -> None:
    """Half way through a reply."""
    ask = ASKS[name]
    scripts = [Script(ask.ids("mute"), (*b"so far, so ", ord("Q"), *b"uiet")), script(ask, "next")]
    with rig(scripts, tokenizer=Mute()) as server:
        answer = ask.post(server.client, "mute", stream=stream)
        assert answer.status_code == (200 if stream else 500)
        assert "engine failed this request" in error_of(answer)
        assert server.health()[1]["requests_failed"] == 1
        assert text_of(ask.post(server.client, "next", stream=stream)) == REPLY.decode()
        server.idle()


def test_a_hundred_faults_in_a_row_leave_nothing_behind() -> None:
    """Lanes, pages and threads are those of the beginning."""
    ask = ASKS["completions"]
    acts: list[Callable[[], None]] = [raises(RuntimeError("no")), raises(MemoryError())]
    scripts = [script(ask, f"boom {number}", at={number % 5: acts[number % 2]}) for number in range(100)]
    with rig([*scripts, script(ask, "next")]) as server:
        ask.post(server.client, "next", stream=False)
        server.idle()
        free, threads = server.health()[1]["positions_free"], threads_by_pool()
        for number in range(100):
            assert ask.post(server.client, f"boom {number}", stream=False).status_code == 500
        server.idle()
        assert server.health()[1]["positions_free"] == free
        # Keys are read again every second; the thread for it starts when that is due for the first time.
        assert threads_by_pool() - {"tensorfold-auth"} == threads - {"tensorfold-auth"}
        assert text_of(ask.post(server.client, "next", stream=False)) == REPLY.decode()
