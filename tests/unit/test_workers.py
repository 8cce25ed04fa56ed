"""Several items at a time: their order, no more than asked for in work, the first error, and nobody left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from automedbench.base.workers import limit_workers, map_in_order

WAIT_S = 20  # only where something is wrong


class Gate:
    """Counts who is inside; opens once ``n`` are."""

    def __init__(self, n: int) -> None:
        self.barrier = threading.Barrier(n)
        self.lock, self.inside, self.most = threading.Lock(), 0, 0

    def __call__(self, item: int) -> int:
        with self.lock:
            self.inside += 1
            self.most = max(self.most, self.inside)
        self.barrier.wait(WAIT_S)
        with self.lock:
            self.inside -= 1
        return item * 10


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_so_many_at_a_time_in_their_order(workers: int) -> None:
    """The gate opens for exactly so many: fewer would wait for ever, more would be counted."""
    gate = Gate(workers)
    with limit_workers(workers):
        assert map_in_order(gate, range(6)) == [0, 10, 20, 30, 40, 50]
    assert gate.most == workers


def test_one_worker_is_the_calling_thread() -> None:
    """Without being told otherwise, and again within a worker: nested maps don't multiply."""
    here = threading.get_ident()
    assert set(map_in_order(lambda _: threading.get_ident(), range(3))) == {here}
    with limit_workers(2):
        nested = map_in_order(
            lambda _: {threading.get_ident(), *map_in_order(lambda _: threading.get_ident(), "abc")}, "abcd"
        )
    assert all(len(threads) == 1 and here not in threads for threads in nested)
    assert set(map_in_order(lambda _: threading.get_ident(), range(3))) == {here}


def test_less_than_one_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"), limit_workers(0):
        pass


@pytest.mark.parametrize("workers", [1, 4])
def test_nothing(workers: int) -> None:
    with limit_workers(workers):
        assert map_in_order(str, []) == []


def test_items_are_taken_as_the_work_goes_on() -> None:
    """While the first item is in work no more than four are taken by two workers, in the calling thread."""
    taken: list[int] = []
    takers = set()
    go_on = threading.Event()

    def items() -> Iterator[int]:
        for number in range(20):
            taken.append(number)
            takers.add(threading.get_ident())
            yield number

    def work(number: int) -> int:
        if number == 0:
            go_on.wait(WAIT_S)
            return len(taken)
        if number == 3:
            go_on.set()
        return number

    with limit_workers(2):
        found = map_in_order(work, items())
    assert found[0] <= 4
    assert found[1:] == taken[1:] == list(range(1, 20))
    assert takers == {threading.get_ident()}


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_the_error_of_the_first_item_that_fails(workers: int) -> None:
    """Even if a later one fails sooner; afterwards nobody works and nothing new is begun."""
    second_failed = threading.Event()
    working: set[int] = set()
    begun: list[int] = []

    def work(number: int) -> None:
        begun.append(number)
        working.add(number)
        try:
            if number == 2:
                if workers > 1:
                    second_failed.wait(WAIT_S)
                raise ValueError("the first")
            if number == 3:
                second_failed.set()
                raise ValueError("the second")
        finally:
            working.remove(number)

    with limit_workers(workers), pytest.raises(ValueError, match="the first"):
        map_in_order(work, range(1000))
    assert working == set()
    assert len(begun) <= 3 + 2 * workers


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("broken", [True, False])
def test_an_error_of_the_items(workers: int, broken: bool) -> None:
    """What came before it is finished; an error in that is told instead."""

    def items() -> Iterator[int]:
        yield from (1, 2)
        raise KeyError("items")

    def work(number: int) -> None:
        finished.append(number)
        if broken and number == 2:
            raise ValueError("work")

    finished: list[int] = []
    with limit_workers(workers), pytest.raises(ValueError if broken else KeyError, match="work" if broken else "items"):
        map_in_order(work, items())
    assert sorted(finished) == [1, 2]


def test_ctrl_c(tmp_path: Path) -> None:
    """What is in work is finished and nothing new begun; then the program ends as it would with one worker."""
    program = textwrap.dedent(
        """
        import sys, time
        from pathlib import Path
        from automedbench.base.workers import limit_workers, map_in_order

        def work(number):
            (Path(sys.argv[1]) / f"{number}.begun").touch()
            time.sleep(0.5)
            (Path(sys.argv[1]) / f"{number}.ended").touch()

        try:
            with limit_workers(2):
                map_in_order(work, range(1000))
        except KeyboardInterrupt:
            assert len(list(Path(sys.argv[1]).glob("*.begun"))) == len(list(Path(sys.argv[1]).glob("*.ended")))
            sys.exit(7)
        """
    )
    process = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)])
    try:
        until = time.monotonic() + WAIT_S
        while not (tmp_path / "1.begun").exists() and time.monotonic() < until:
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(WAIT_S) == 7
    finally:
        process.kill()
    assert len(list(tmp_path.glob("*.begun"))) <= 6
