"""Conversations to tokens: templates, the checks around them, and the plain reply format.

| module | what it does |
|---|---|
| prompt | a request's prompt to ids, checked |
| template | one chat template, compiled and rendered |
| messages | the IR's messages as the plain data that templates read |
| manners | what a template cannot render, and what it is given instead |
| sandbox, budget | the Jinja environment, and the bounds of a rendering |
| marks | control tokens that no text can forge |
| plain | the format of checkpoints without markup |
"""
