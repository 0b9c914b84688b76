"""Configuration: one frozen `ServeConfig`, from `tensorfold.toml`, the environment and flags, each value with its origin.

| module | what it does |
|---|---|
| values | one raw value to the type that its setting declares |
| sources | file, environment and flags, in this order; the later wins |
| serve | the server's own settings, and the whole configuration |
"""

from tensorfold.config.serve import ServeConfig, core_table, load_config
from tensorfold.config.sources import ConfigFile, Flags, find_file, read_file

__all__ = ["ConfigFile", "Flags", "ServeConfig", "core_table", "find_file", "load_config", "read_file"]
