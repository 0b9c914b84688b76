"""Every type at the seam between the core and its plugins: protocols and frozen declarations, no implementations.

| module | what it declares |
|---|---|
| arrays, handles, states, step, ops | the operations over which a family is written once |
| tensors, weights | stored weights in neutral form, and how they reach a family |
| model_config, family | what a family claims, declares and builds |
| sampling, backend | what a backend offers |
| chat, gates | how a family converses, and control of single tokens |
| engine | requests in, events out |
| dialect | an API: pure codecs, resources, error envelopes |
| auth, policy, observe | callers, scheduling decisions, request filters, observers |
| settings, commands | a plugin's own configuration and commands |

A contract never gains a method: new abilities are new small protocols, asked for once at start.
"""
