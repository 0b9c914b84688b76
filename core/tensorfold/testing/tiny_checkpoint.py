"""A model family's example as a folder that can be served: random weights, a small tokenizer, a chat template.

`python -m tensorfold.testing.tiny_checkpoint PLUGIN FOLDER` writes it; PLUGIN is what `tensorfold check` takes.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tensorfold.contracts.examples import FamilyExample
from tensorfold.errors import TensorfoldError
from tensorfold.testing.plugins import Target
from tensorfold.testing.random_tensors import RandomTensors
from tensorfold.testing.safetensors_writer import write_safetensors
from tensorfold.testing.tiny_tokenizer import CHAT_TEMPLATE, CONTROL_TOKENS, TINY_VOCABULARY, tiny_tokenizer

__all__ = ["write_example"]


def write_example(folder: Path, example: FamilyExample) -> Path:
    """Write a checkpoint into a folder, which is made and returned.

    Raises:
        ValueError: the example's vocabulary is smaller than the tokenizer's.
    """
    size = example.config.get("vocab_size")
    if isinstance(size, int) and size < TINY_VOCABULARY:
        raise ValueError(f"vocab_size is {size}, and the tiny tokenizer has {TINY_VOCABULARY} tokens")
    folder.mkdir(parents=True, exist_ok=True)
    about = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": CONTROL_TOKENS[0],
        "eos_token": CONTROL_TOKENS[2],
        "chat_template": CHAT_TEMPLATE,
    }
    for name, content in (("config.json", example.config), ("tokenizer_config.json", about)):
        (folder / name).write_text(json.dumps(content, indent=2), encoding="utf-8")
    (folder / "tokenizer.json").write_text(tiny_tokenizer().to_str(), encoding="utf-8")
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
        offered = target.offers(target.plugins().examples())
    except TensorfoldError as error:
        print(error, file=sys.stderr)
        return 2
    examples = [each for each in offered if isinstance(each, FamilyExample)]
    if not examples:
        print(f"{plugin} has no FamilyExample among its answers to tensorfold_examples", file=sys.stderr)
        return 2
    print(f"{write_example(Path(folder), examples[0])} is written")
    return 0


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
