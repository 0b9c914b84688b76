"""Sizes of the fake family. Widths of 3, 5 and 6 heads' worth are no multiple of a vector's width, on purpose."""

from __future__ import annotations

from typing import Final

EPS: Final = 1e-6
HIDDEN: Final = 32
WIDTH: Final = 40
"""Of the feed-forward blocks."""

HEADS: Final = 4
KV_HEADS: Final = 2
HEAD_DIM: Final = 8
WINDOW: Final = 24
"""Of the windowed attention: less than a page."""

LATENT: Final = 16
LATENT_ROPE: Final = 8
LATENT_NOPE: Final = 6
LATENT_V: Final = 10

LATENT_PARTS: Final[tuple[int, ...]] = (HEADS * LATENT_NOPE, HEADS * LATENT_ROPE, LATENT, LATENT_ROPE)
"""Query without and with rotation, latent, rotary key."""

INDEX_HEADS: Final = 16
"""With few heads many scores are exactly 0, and the choice rests on ties alone."""
INDEX_DIM: Final = 8
INDEX_POOL: Final = 4
INDEX_TOPK: Final = 5
"""Pools kept: a row that is further than about 20 positions sees a part of what is behind it."""
INDEX_PARTS: Final[tuple[int, ...]] = (INDEX_HEADS * INDEX_DIM, INDEX_DIM, INDEX_HEADS)
"""Queries, key, weights."""

EXPERTS: Final = 5
EXPERTS_CHOSEN: Final = 2
EXPERT_WIDTH: Final = 12

DELTA_KEY_HEADS: Final = 1
DELTA_HEADS: Final = 3
DELTA_DIM: Final = 8
DELTA_TAPS: Final = 4
DELTA_KEYS: Final = DELTA_KEY_HEADS * DELTA_DIM
DELTA_VALUES: Final = DELTA_HEADS * DELTA_DIM
DELTA_CHANNELS: Final = 2 * DELTA_KEYS + DELTA_VALUES
DELTA_PARTS: Final[tuple[int, ...]] = (DELTA_CHANNELS, DELTA_VALUES, DELTA_HEADS, DELTA_HEADS)
"""Query, key and value; output gate; step; decay."""

SSD_HEADS: Final = 6
SSD_DIM: Final = 5
SSD_GROUPS: Final = 2
SSD_STATE: Final = 4
SSD_TAPS: Final = 3
SSD_DILATION: Final = 2
SSD_VALUES: Final = SSD_HEADS * SSD_DIM
SSD_STATES: Final = SSD_GROUPS * SSD_STATE
SSD_CHANNELS: Final = SSD_VALUES + 2 * SSD_STATES
SSD_PARTS: Final[tuple[int, ...]] = (SSD_VALUES, SSD_CHANNELS, SSD_HEADS)
"""Gate; convolved values, b and c; step."""
