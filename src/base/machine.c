#include "base/machine.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

double now_s(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The value of the first line of /proc/cpuinfo that begins with `key`. */
static bool read_cpuinfo(const char *key, char *out, size_t size)
{
    char line[512];
    bool found = false;
    FILE *f = fopen("/proc/cpuinfo", "r");
    if (!f)
        return false;
    while (!found && fgets(line, sizeof(line), f)) {
        const char *colon = strchr(line, ':');
        if (!colon || strncmp(line, key, strlen(key)) != 0)
            continue;
        size_t n = strcspn(colon + 1, "\n");
        (void)snprintf(out, size, "%.*s", (int)n - (n > 0 && colon[1] == ' '),
                       colon + 1 + (n > 0 && colon[1] == ' '));
        found = true;
    }
    (void)fclose(f);
    return found;
}

void processor_name(char *out, size_t size)
{
    if (!read_cpuinfo("model name", out, size) && !read_cpuinfo("CPU part", out, size))
        (void)snprintf(out, size, "unknown");
}
