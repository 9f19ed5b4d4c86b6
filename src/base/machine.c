#include "base/machine.h"

#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/compiler.h"

double now_s(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double thread_s(void)
{
    struct timespec t = {0};
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int thread_number(void)
{
    return (int)syscall(SYS_gettid);
}

double run_delay_s(int thread)
{
    char text[96];
    unsigned long long ran_ns = 0, waited_ns = 0;
    (void)snprintf(text, sizeof(text), "/proc/self/task/%d/schedstat", thread);
    int fd = open(text, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0.0;
    ssize_t n = read(fd, text, sizeof(text) - 1);
    (void)close(fd);
    text[MAX(n, 0)] = '\0';
    if (sscanf(text, "%llu %llu", &ran_ns, &waited_ns) != 2) // NOLINT(cert-err34-c)
        return 0.0;
    return 1e-9 * (double)waited_ns;
}

int usable_processors(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof(set), &set) != 0)
        return 1;
    return MAX(CPU_COUNT(&set), 1);
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
