"""`tensorfold bench`: load for any OpenAI-compatible server, and what came of it.

| module | what it does |
|---|---|
| workload | prompts of a given length, and when each request is sent |
| measure | one request, and when its pieces came |
| load | many requests: so many at once, or so many a second |
| report | figures from samples; tables and ratios |
"""

from tensorfold.cli.bench.run import command

__all__ = ["command"]
