"""The suite, whose imports and many small objects would start a garbage collection at each 700: a tenth of its CPU."""

import gc

gc.set_threshold(10_000, 10, 10)
