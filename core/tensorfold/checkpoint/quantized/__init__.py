"""Quantized safetensors: matrices that lie in a checkpoint as codes and scales, read under their own names.

| module | what it does |
|---|---|
| scheme | what a config says of its quantization; what is not read is refused by name |
| finding | which stored tensors together are one matrix |
| matrices | each kind of matrix: its shape, and how it is read |
| codes, floats | integers of a few bits, and floats of 8 and 4 bits |
| tensors | a checkpoint's tensors with those matrices in the place of their parts |
"""
