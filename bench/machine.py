"""The machine that is measured, and what it can do at most.

Needs nothing but Python and, for the limits, the build's
libquern-bench-meters.so."""

import ctypes
import os
import platform

# meters/meters.h
METER_READ = 0


class Limits:
    """Rates that nothing on this machine exceeds, of the best of a few
    passes, which take some hundredths of a second."""

    def __init__(self, library):
        self.lib = ctypes.CDLL(library)
        for name in ("meter_bandwidth", "meter_flops", "meter_dot8"):
            getattr(self.lib, name).restype = ctypes.c_double

    def read(self, threads):
        """Bytes per second that `threads` threads read from memory."""
        return self.lib.meter_bandwidth(METER_READ, threads, 5)

    def flops(self, threads):
        """Float32 operations per second, a multiply-add being two."""
        return self.lib.meter_flops(threads, 5)

    def dot8(self, threads):
        """Multiply-adds of 8-bit integers per second; 0: has none."""
        return self.lib.meter_dot8(threads, 5)


def find_limits(build):
    """The limits' meter in the folder `build`, or None."""
    path = os.path.join(build, "libquern-bench-meters.so")
    return Limits(path) if os.path.exists(path) else None


def processors():
    return len(os.sched_getaffinity(0))


def processor():
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.machine()


def system():
    return f"{platform.system()} {platform.release()} {platform.machine()}"


def load():
    return os.getloadavg()[0]
