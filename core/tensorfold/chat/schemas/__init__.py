"""What binds a reply's form, made ready for the grammar library: what that enforces exactly, and refusals of the rest.

The library ignores much of JSON Schema without a word, and reads some of it otherwise. So a schema is first brought
into a form that it does keep to, and everything else is refused with its keyword and place. Texts with a length or a
pattern are grammars of our own: a length counts characters and not escapes, and a pattern is searched, as the standard
says.

| module | what it does |
|---|---|
| grammar | any form of a reply as the text of a grammar, or as a schema with such texts in it |
| normalise | a schema in the form that is kept to |
| keywords | the table of what is ignored, refused and kept |
| merge | the intersection of two schemas |
| objects, arrays, scalars | the forms of each type |
| disjoint, finite | whether no value fits two schemas; whether some value fits one at all |
| patterns, charsets, spell | expressions: read, as sets of characters, spelled as grammars |
| limits, refusal | bounds on what a schema may cost; how it is refused |
"""
