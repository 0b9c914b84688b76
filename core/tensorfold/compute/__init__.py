"""Running a decoder: operations over few primitives, shared layers, pages, the Runner, weights, the sampling rule."""
