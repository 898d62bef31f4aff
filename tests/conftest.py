"""Fixtures of several folders: the wids package, also where torch is not installed."""

import importlib
import importlib.util
import sys
import types
from typing import Generic, TypeVar

import pytest

T = TypeVar("T")


class Indexed(Generic[T]):
    """Stands where wids wants torch's Dataset and Sampler: base classes without anything of use to it."""


@pytest.fixture
def wids(monkeypatch):
    """The package; its readers are its own, torch is needed for two base classes and for samplers unused here."""
    if importlib.util.find_spec("torch") is None:
        for name in ("torch", "torch.distributed", "torch.utils", "torch.utils.data"):
            monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
        sys.modules["torch"].distributed = sys.modules["torch.distributed"]
        sys.modules["torch.utils.data"].Dataset = sys.modules["torch.utils.data"].Sampler = Indexed
    return importlib.import_module("wids")
