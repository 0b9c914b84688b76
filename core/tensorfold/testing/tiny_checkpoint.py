"""A model family's example as a folder that can be served: random weights, a small tokenizer, a chat template.

`python -m tensorfold.testing.tiny_checkpoint PLUGIN FOLDER` writes it; PLUGIN is what `tensorfold check` takes.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tensorfold.contracts.examples import FamilyExample
from tensorfold.contracts.family import ModelFamily
from tensorfold.errors import TensorfoldError
from tensorfold.testing.declared_checkpoint import write_declared
from tensorfold.testing.plugins import Target
from tensorfold.testing.random_tensors import RandomTensors
from tensorfold.testing.safetensors_writer import write_safetensors
from tensorfold.testing.tiny import write_texts
from tensorfold.testing.tiny_tokenizer import TINY_VOCABULARY

__all__ = ["write_example"]


def write_example(folder: Path, example: FamilyExample, family: ModelFamily) -> Path:
    """Write a checkpoint into a folder, which is made and returned.

    Raises:
        ValueError: the example's vocabulary is smaller than the tokenizer's.
    """
    size = example.config.get("vocab_size")
    if isinstance(size, int) and size < TINY_VOCABULARY:
        raise ValueError(f"vocab_size is {size}, and the tiny tokenizer has {TINY_VOCABULARY} tokens")
    if example.tensors is None:
        return write_declared(folder, family, example.config)
    write_texts(folder, example.config)
    tensors = RandomTensors(example.tensors)
    write_safetensors(folder / "model.safetensors", {name: tensors.read(name).values for name in tensors.names()})
    return folder


def _main(arguments: list[str]) -> int:
    if len(arguments) != 2:
        print("usage: python -m tensorfold.testing.tiny_checkpoint PLUGIN FOLDER", file=sys.stderr)
        return 2
    plugin, folder = arguments
    try:
        target = Target(str(Path(plugin).resolve()) if Path(plugin).exists() else plugin)
        plugins = target.plugins()
        families = {each.name: each for each in target.offers(plugins.families())}
        offered = target.offers(plugins.examples())
    except TensorfoldError as error:
        print(error, file=sys.stderr)
        return 2
    examples = [each for each in offered if isinstance(each, FamilyExample) and each.family in families]
    if not examples:
        print(
            f"{plugin} has no FamilyExample of a family of its own among its answers to tensorfold_examples",
            file=sys.stderr,
        )
        return 2
    example = examples[0]
    print(f"{write_example(Path(folder), example, families[example.family])} is written")
    return 0


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
