"""Where prompts are cut: from their ids alone, so that two prompts that begin alike are computed alike."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from tensorfold.engine.plan import LEAST, Chunk, chunk_plan

OPENING = 9
"""The token that opens a message."""


def plan(ids: Sequence[int], step: int) -> tuple[Chunk, ...]:
    markers = tuple(place for place, token in enumerate(ids) if token == OPENING)
    return chunk_plan(len(ids), markers, step)


def test_a_prompt_without_markers_is_cut_in_steps() -> None:
    assert chunk_plan(10, (), 4) == (Chunk(0, 4), Chunk(4, 8), Chunk(8, 10))
    assert chunk_plan(4, (), 4) == (Chunk(0, 4),)


def test_a_chunk_ends_at_the_first_message_that_opens_far_enough_behind_its_start() -> None:
    assert chunk_plan(1000, (0, 100, LEAST, 300, 800), 512) == (
        Chunk(0, LEAST),
        Chunk(LEAST, LEAST + 512),
        Chunk(LEAST + 512, 1000),
    )
    assert chunk_plan(600, (300, 400), 512) == (Chunk(0, 300), Chunk(300, 600))
    assert chunk_plan(600, (512,), 512) == (Chunk(0, 512), Chunk(512, 600))


def test_steps_below_the_least_chunk_know_no_markers() -> None:
    assert chunk_plan(20, (3, 9), 8) == (Chunk(0, 8), Chunk(8, 16), Chunk(16, 20))


def test_a_branch_begins_a_chunk_in_any_case() -> None:
    """However near it is to a start, to a marker or to the end; one that lies outside is none."""
    assert chunk_plan(20, (), 8, 3) == (Chunk(0, 3), Chunk(3, 11), Chunk(11, 19), Chunk(19, 20))
    assert chunk_plan(600, (300,), 512, 301) == (Chunk(0, 300), Chunk(300, 301), Chunk(301, 600))
    assert chunk_plan(9, (), 8, 8) == chunk_plan(9, (), 8)
    for outside in (0, 4, 5, None):
        assert chunk_plan(4, (), 8, outside) == (Chunk(0, 4),)


def ids() -> st.SearchStrategy[list[int]]:
    """Runs of text with openings between them."""
    return st.lists(st.integers(1, 400), min_size=1, max_size=8).map(
        lambda runs: [token for run in runs for token in (OPENING, *[1] * run)]
    )


@given(ids(), ids(), st.integers(0, 2000), st.sampled_from((64, 256, 300, 512, 2048)))
def test_prompts_that_agree_up_to_a_common_start_are_cut_alike_before_it(
    one: list[int], tail: list[int], shared: int, step: int
) -> None:
    """Whatever follows, the chunks up to a start that both have are the same ones."""
    other = [*one[:shared], *tail]
    agree = next(
        (place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )
    first, second = plan(one, step), plan(other, step)
    assert [each.start for each in first[1:]] == [each.end for each in first[:-1]]
    assert (first[0].start, first[-1].end) == (0, len(one))
    assert all(each.end - each.start <= step for each in first)
    common = {each.start for each in first} & {each.start for each in second}
    for start in common:
        if start <= agree:
            assert [each for each in first if each.end <= start] == [each for each in second if each.end <= start]
