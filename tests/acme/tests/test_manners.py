"""ACME's policy, filter and observer keep the contracts, under pytest and by `tensorfold check`."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tensorfold.contracts.observe import Observer
from tensorfold.contracts.policy import RequestFilter, SchedulerPolicy
from tensorfold.testing.filters import RequestFilterContract
from tensorfold.testing.observers import ObserverContract
from tensorfold.testing.plugins import PluginContract
from tensorfold.testing.policies import SchedulerPolicyContract
from tensorfold_acme.manners import AcmeCounter, AcmeFilter, AcmePolicy


class TestPolicy(SchedulerPolicyContract):
    """By passes."""

    @pytest.fixture
    def policy(self) -> SchedulerPolicy:
        """A fresh one."""
        return AcmePolicy()


class TestFilter(RequestFilterContract):
    """Background for strangers."""

    @pytest.fixture
    def filter(self) -> RequestFilter:
        """A fresh one."""
        return AcmeFilter()


class TestObserver(ObserverContract):
    """A count."""

    @pytest.fixture
    def observer(self) -> Observer:
        """A fresh one."""
        return AcmeCounter()


class TestPlugin(PluginContract):
    """The installed plugin, beside all others."""

    plugin = "extras/acme"


def test_an_installed_plugin_is_checked_by_its_name() -> None:
    """One line a claim, without a folder or a test of ours."""
    command = [sys.executable, "-m", "tensorfold", "check", "extras/acme"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout
    assert {"the plugin", "scheduling policy acme", "request filter acme", "observer 1"} <= set(
        done.stdout.splitlines()
    )
    assert "FAILS" not in done.stdout
