"""ACME's plugins: each module is one, and offers one thing."""
