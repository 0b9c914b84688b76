"""For plugin authors: contracts to run against a plugin, and stand-ins for what stands around it."""
