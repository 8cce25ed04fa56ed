"""Several cases at a time: a map over threads that keeps the order of its items and takes them up only as it goes.

Threads, because what costs time (decompressing, compressing, hashing, decoding, NumPy) runs outside the interpreter's
lock, and because what is in memory then is one case per worker, not one copy of everything.

A track's ``stage`` does not hand the number of workers down: its caller says ``with limit_workers(4)``, which
``map_in_order`` reads. Within a worker the number is 1 again, so that nested maps don't multiply.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import Future

Item = TypeVar("Item")
Result = TypeVar("Result")
_WORKERS: ContextVar[int] = ContextVar("workers", default=1)  # threads start with the default


@contextlib.contextmanager
def limit_workers(workers: int) -> Iterator[None]:
    """Within the block ``map_in_order`` works on so many items at a time. Raises ValueError for less than one."""
    if workers < 1:
        raise ValueError(f"{workers} workers; at least 1 is needed")
    token = _WORKERS.set(workers)
    try:
        yield
    finally:
        _WORKERS.reset(token)


def map_in_order(function: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """``[function(item) for item in items]``, on as many items at a time as ``limit_workers`` allows.

    ``items`` are taken in the calling thread, one after the other, and not more than one per worker ahead of those in
    work, so that an iterable may choose while it is read. Results should be small: all are kept.

    The error raised is the one that one worker would have met first, whichever came first. Then, and when interrupted,
    nothing new is begun and what is in work is waited for: no worker writes any more when this returns.
    """
    workers = _WORKERS.get()
    if workers == 1:
        return [function(item) for item in items]
    from concurrent.futures import ThreadPoolExecutor

    results: list[Result] = []
    begun: deque[Future[Result]] = deque()
    rest = iter(items)
    prefix = f"case-{id(results)}"
    pool = ThreadPoolExecutor(workers, thread_name_prefix=prefix)
    try:
        while True:
            # A long case does not stop the others at once: as many results as workers may wait for it.
            try:
                for item in itertools.islice(rest, 2 * workers - len(begun)):
                    begun.append(pool.submit(function, item))
            except Exception:
                results.extend(each.result() for each in begun)  # what comes before in order is told instead
                raise
            if not begun:
                return results
            results.append(begun.popleft().result())
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        # An interruption while a thread is started leaves it at work, unknown to the pool.
        for thread in threading.enumerate():
            if thread.name.startswith(f"{prefix}_"):
                thread.join()
