"""The engine: requests in, events out, one thread that owns the Runner.

| module | its one idea |
|---|---|
| engine, settings, front, watchdog | the facade on the event loop's side, its configuration, the pool that renders and tokenizes, who watches |
| admission, limits, rules, keys, plan, titles | from a request to a `Job`: all that decides the bits of its replies, and whether anybody waits for it |
| job, active | the frozen job; its accounting while it runs |
| sequence, gates | one reply: windows offered, draws accepted, tokens masked and forced |
| constraints, spelling | the gates that a request asks for |
| thinking, forcing, grammar | gates: a budget for the reasoning, a call that must be made, a form that is kept to |
| grammars | forms compiled, once at a time, the latest ones kept |
| loops | replies that only repeat themselves |
| drafts, copies, heads | guesses: from the text before, from the checkpoint's own draft head |
| costs, depth, probe | what steps cost, how many guesses pay, and whether rows are independent on this machine |
| reply, detokenize, stops | tokens to text, text to events |
| scheduler, policies | whose turn it is |
| lanes, capacity | slots of the Runner, and for whom there is room |
| prefix, kept, sharing | prompts that begin alike: a tree over tokens, snapshots behind it, who waits for whose |
| spill, spill_file | kept prompts on disk |
| loop, prefill, rounds, scoring, steps, roster | the thread, the kinds of steps that it runs, and the ways in which a request ends |
| events | from the engine thread to the event loop, one wake-up a round |
"""
