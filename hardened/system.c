/* The machine as the engine sees it: a clock, and a time zone. */

#include <string.h>

#include "system.h"

/* Microseconds since 1970. */
__attribute__((import_module("host"), import_name("now"))) double host_now(void);

int own_gettimeofday(struct timeval *out, void *zone)
{
    long long now = (long long)host_now();
    out->tv_sec = now / 1000000;
    out->tv_usec = now % 1000000;
    return 0;
}

int own_clock_gettime(clockid_t clock, struct timespec *out)
{
    long long now = (long long)host_now();
    out->tv_sec = now / 1000000;
    out->tv_nsec = now % 1000000 * 1000;
    return 0;
}

/* A script sees UTC; the engine reads nothing of this but the offset. */
struct tm *own_localtime_r(const time_t *at, struct tm *out)
{
    memset(out, 0, sizeof(*out));
    return out;
}

_Noreturn void own_assert_fail(const char *what, const char *file, int line, const char *function)
{
    __builtin_trap();
}
