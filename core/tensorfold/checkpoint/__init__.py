"""Model files: what a folder or file holds, found without reading a weight, and weights read one tensor at a time.

| module | what it does |
|---|---|
| open | picks the format and the family |
| base | what every format offers |
| folder, safetensors, templates, folder_tokenizer | Hugging Face folders |
| gguf, gguf_reader, gguf_types, gguf_tokenizer, pretokenizers | GGUF files |
| tokenizer | text to ids, whatever the tokenizer was built from |
| mapped, json_files, identity | bounded reading, and what a checkpoint is known by |
"""
