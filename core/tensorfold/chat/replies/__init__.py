"""Replies while they are written: reasoning, text and calls, told apart without ever looking back.

A reader is a generator over one `Source`: it consumes what is certain, and yields when it needs more of the reply. So
it reads like a parser of finished text, holds back only what may yet become a marker, and gives the same pieces however
the text was cut.

| module | what it does |
|---|---|
| source | the reply's text as it comes, and what every reader is made of |
| offered | the functions that may be called, and the types of their parameters |
| calls | what a notation of calls is, and where its reader writes |
| xml_calls, json_calls, pair_calls, gemma_calls | the notations |
| json_text, values | JSON copied while it is checked; text as JSON by its schema's type |
| markup | a format's markers, declared |
| parser | the parser that all formats share |
"""
