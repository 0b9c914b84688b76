"""ACME's plugins keep the contracts that tensorfold ships."""

from __future__ import annotations

from typing import ClassVar

import pytest

from tensorfold.contracts.auth import AuthSource
from tensorfold.contracts.family import ModelFamily
from tensorfold.contracts.settings import PluginSettings
from tensorfold.testing.auth import AuthSourceContract
from tensorfold.testing.dialects import DialectContract
from tensorfold.testing.families import ModelFamilyContract, TinyCheckpoint
from tensorfold_acme.auth import AcmeSource
from tensorfold_acme.dialects import tensorfold_dialects
from tensorfold_acme.models import AcmeFamily


class TestDialect(DialectContract):
    """`POST /acme/complete`."""

    dialect = next(iter(tensorfold_dialects(PluginSettings({}))))
    bodies: ClassVar = {"/acme/complete": b'{"prompt": "hi"}'}
    stream_bodies: ClassVar = {"/acme/complete": b'{"prompt": "hi", "stream": true}'}


class TestAuthSource(AuthSourceContract):
    """One password."""

    accepted: ClassVar = {"open sesame": "acme"}

    @pytest.fixture
    def source(self) -> AuthSource:
        """With a password."""
        return AcmeSource("open sesame")


class TestFamily(ModelFamilyContract):
    """One layer."""

    refused: ClassVar = {"hidden_act": "silu"}

    @pytest.fixture
    def family(self) -> ModelFamily:
        """The only one."""
        return AcmeFamily()

    @pytest.fixture
    def checkpoint(self, acme_checkpoint: TinyCheckpoint) -> TinyCheckpoint:
        """A tiny one."""
        return acme_checkpoint
