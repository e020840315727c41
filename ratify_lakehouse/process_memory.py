"""What a process of ours does about its memory."""

import ctypes
import gc
from contextlib import suppress
from functools import cache


def limit_malloc_arenas() -> None:
    """Limit glibc to two malloc arenas in this process. The Delta extension uses many threads, and each leaves memory in an
    arena of its own: 60 KB with every commit, without end."""
    m_arena_max = -8
    with suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").mallopt(m_arena_max, 2)


@cache
def keep_imported() -> None:
    """Leave what this process has imported by now out of garbage collections, which would go through its 200,000 objects.

    One of these in the middle of a load takes 0.1 s. Only once: what is no longer used then would never be freed.
    """
    gc.freeze()
