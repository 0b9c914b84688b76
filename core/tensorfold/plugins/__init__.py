"""Plugins: what is wanted, what is installed, what was loaded, and what it offers.

`Wanted` (what the user said) and the installed entry points make `Plugins` (modules, imported and checked), whose
answers make the `Catalog` that everything else reads. Nothing here is called while a request runs.

| module | what it does |
|---|---|
| wanted | the user's wishes: `--plugin`, `--dialect`, `--backend` |
| found | installed entry points: their kinds, names and distributions, before any import |
| folders | the same of a folder that is not installed |
| choosing | which of them are imported, and why the others are not |
| loading | imports, checks and asks plugins; knows each one's state |
| catalog | the typed answers, free of conflicts |
"""

from tensorfold.plugins.catalog import Catalog
from tensorfold.plugins.found import Found, Kind, find_installed
from tensorfold.plugins.loading import Offered, Plugins, PluginState, State
from tensorfold.plugins.wanted import Wanted

__all__ = ["Catalog", "Found", "Kind", "Offered", "PluginState", "Plugins", "State", "Wanted", "find_installed"]
