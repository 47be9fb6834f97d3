/* Put before every source of the engine: what would ask the system for something asks us instead, so that
 * nothing of WASI is left to be imported. */

#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

int own_gettimeofday(struct timeval *out, void *zone);
int own_clock_gettime(clockid_t clock, struct timespec *out);
struct tm *own_localtime_r(const time_t *at, struct tm *out);

#define gettimeofday(out, zone) own_gettimeofday(out, zone)
#define clock_gettime(clock, out) own_clock_gettime(clock, out)
#define localtime_r(at, out) own_localtime_r(at, out)

/* An assertion that does not hold ends the run, and only the run. */
_Noreturn void own_assert_fail(const char *what, const char *file, int line, const char *function);

#define __assert_fail own_assert_fail
#define abort() __builtin_trap()

/* Nobody reads what the engine prints of itself. */
#define printf(...) ((void)0)
#define fprintf(...) ((void)0)
#define putchar(character) ((void)(character))
#define fputc(character, to) ((void)(character))
#define putc(character, to) ((void)(character))
#define fputs(text, to) ((void)(text))
#define fwrite(from, size, count, to) ((void)(from))
#define fflush(to) ((void)0)
