"""A wall clock that a test sets for the processes that it starts: a library between them and the C library."""

from __future__ import annotations

import struct
import subprocess
from pathlib import Path

_SOURCE = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>

static const long long *ahead;

__attribute__((constructor)) static void begin(void) {
    int file = open(getenv("FAULT_CLOCK"), O_RDONLY);
    void *page = file < 0 ? MAP_FAILED : mmap(0, sizeof *ahead, PROT_READ, MAP_SHARED, file, 0);
    if (page == MAP_FAILED) abort();
    ahead = page;
}

int clock_gettime(clockid_t which, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(which, now);
    if (result == 0 && ahead && (which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE)) now->tv_sec += *ahead;
    return result;
}

int gettimeofday(struct timeval *now, void *zone) {
    struct timespec exact;
    int result = clock_gettime(CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return result;
}

time_t time(time_t *now) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (now) *now = exact.tv_sec;
    return exact.tv_sec;
}
"""


class Clock:
    """How far ahead of the machine's clock that of the processes is."""

    def __init__(self, directory: Path) -> None:
        self._ahead = directory / "ahead"
        self._ahead.write_bytes(struct.pack("q", 0))
        library = directory / "clock.so"
        command = ["cc", "-shared", "-fPIC", "-O1", "-x", "c", "-", "-o", str(library), "-ldl"]
        subprocess.run(command, input=_SOURCE, text=True, check=True)
        self.environment = {"LD_PRELOAD": str(library), "FAULT_CLOCK": str(self._ahead)}
        """What a process must be started with."""

    def set(self, seconds: int) -> None:
        """Sets the clock so far ahead, or back, for every process at once."""
        with self._ahead.open("r+b") as file:
            file.write(struct.pack("q", seconds))
