"""Work spread over processes, with results in the order of the work."""

import collections
import concurrent.futures
import multiprocessing
import os
import signal
import sys
import threading
import time

from bert.errors import InputError

_function = None  # what this worker process does, made once by `_start`


def available_cores():
    """Number of cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def map_in_order(make_function, make_args, items, num_workers):
    """Applies a function to items in worker processes.

    Each worker makes its own function once, so that what is costly to set up is set up once and never sent.
    Only a few items are in flight at any time, however many there are.

    Args:
      make_function: a top-level callable; ``make_function(*make_args)`` gives the function.
      make_args: tuple of picklable arguments.
      items: iterable of picklable arguments of the function.
      num_workers: number of processes; with 1, all is done in this one.

    Yields:
      The results, in the order of the items.

    Raises:
      InputError: a worker was killed. What a function raises is raised here.
    """
    if num_workers <= 1:
        yield from map(make_function(*make_args), items)
        return
    # Forking shares memory and starts at once; elsewhere than on Linux it is not safe.
    context = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
    executor = concurrent.futures.ProcessPoolExecutor(
        num_workers, context, initializer=_start, initargs=(os.getpid(), make_function, make_args)
    )
    pending = collections.deque()
    try:
        for item in items:
            pending.append(executor.submit(_call, item))
            if len(pending) > 2 * num_workers:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    except concurrent.futures.process.BrokenProcessPool as e:
        raise InputError(
            "A worker process was killed, most likely because memory ran out: use fewer workers (--num_workers)."
        ) from e
    finally:
        executor.shutdown(wait=True, cancel_futures=True)


def _start(parent, make_function, make_args):
    global _function
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    threading.Thread(target=_end_with_parent, args=(parent,), daemon=True).start()
    _function = make_function(*make_args)


def _end_with_parent(parent):
    # A parent that is killed cannot tell its workers, and each would wait for work for ever.
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def _call(item):
    return _function(item)
