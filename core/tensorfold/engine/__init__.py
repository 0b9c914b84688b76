"""The engine: requests in, events out, one thread that owns the Runner.

| module | its one idea |
|---|---|
| engine, settings, front | the facade on the event loop's side, its configuration, the pool that renders and tokenizes |
| admission, limits, rules, keys, plan | from a request to a `Job`: all that decides the bits of its replies |
| job, active | the frozen job; its accounting while it runs |
| sequence, gates, drafts | one reply: windows offered, draws accepted, tokens masked, forced and guessed |
| constraints, spelling | the gates that a request asks for |
| thinking, forcing, grammar | gates: a budget for the reasoning, a call that must be made, a form that is kept to |
| grammars | forms compiled, once at a time, the latest ones kept |
| loops | replies that only repeat themselves |
| reply, detokenize, stops | tokens to text, text to events |
| scheduler, policies | whose turn it is |
| lanes, capacity | slots of the Runner, and for whom there is room |
| loop, rounds, roster | the thread, the two kinds of steps that it runs, and the ways in which a request ends |
| events | from the engine thread to the event loop, one wake-up a round |
"""
