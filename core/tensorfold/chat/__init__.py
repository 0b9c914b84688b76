"""Conversations to tokens, and replies to text, reasoning and calls.

| module | what it does |
|---|---|
| prompt | a request's prompt to ids, checked |
| template | one chat template, compiled and rendered |
| messages | the IR's messages as the plain data that templates read |
| manners, call_turns | what a template cannot render, and what it is given instead |
| effort, thinking | whether and how much a reply shall think: all switches of a request, in the template's words |
| continuing | which part of a last message goes on |
| framing | what a template writes around a call's name |
| sandbox, budget | the Jinja environment, and the bounds of a rendering |
| marks | control tokens that no text can forge |
| formats | how each family converses |
| replies | replies while they are written: the parser and the notations of calls |
| schemas | what binds a reply's form, made ready for the grammar library |
| plain | the format of checkpoints without markup |
"""
