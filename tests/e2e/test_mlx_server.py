"""A real server on MLX: the model that is installed with the tests, with the codes of its file."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest

pytest.importorskip("mlx.core")
pytestmark = [pytest.mark.mlx, pytest.mark.slow, pytest.mark.timeout(900)]

ASKED: tuple[tuple[str, dict[str, Any]], ...] = (
    ("What is the capital of France?", {"temperature": 0}),
    ("Repeat after me: one two three, one two three, one two three.", {"temperature": 0}),
    ("Name three colours of the rainbow.", {"temperature": 0.8, "seed": 7}),
)


def test_a_server_on_mlx_answers_alone_beside_others_and_streamed_alike(start: Any) -> None:
    """Each reply has one hash, however it was asked for; and a greedy one says what the model knows."""
    server = start("--backend", "mlx", "--device", "cpu", "--context", "512", "--parallel", "4")
    server.wait_for(r"backend +mlx on CPU")
    with server.client() as client:

        def ask(which: int) -> tuple[str, str]:
            question, sampling = ASKED[which]
            answer = client.chat.completions.create(
                model="any", messages=[{"role": "user", "content": question}], max_tokens=16, **sampling
            )
            extra = cast("dict[str, Any]", answer.model_extra)
            return str(answer.choices[0].message.content), str(extra["tensorfold"]["token_sha"])

        def streamed(which: int) -> str:
            question, sampling = ASKED[which]
            chunks = client.chat.completions.create(
                model="any", messages=[{"role": "user", "content": question}], max_tokens=16, stream=True, **sampling
            )
            return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)

        alone = [ask(which) for which in range(len(ASKED))]
        with ThreadPoolExecutor(4) as pool:
            together = list(pool.map(ask, (2, 0, 1, 0)))
        assert together == [alone[2], alone[0], alone[1], alone[0]]
        assert [streamed(which) for which in range(len(ASKED))] == [text for text, _ in alone]
    assert "Paris" in alone[0][0]
