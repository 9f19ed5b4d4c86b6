/* host_memory.c: /proc/meminfo, /proc/self/status and the memory controllers, read as they are. */
#include "base/host_memory.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/compiler.h"

enum { PATH = 4096, LINE = 8192 };

/* ---- numbers in files ------------------------------------------------------------------------ */

/* The number behind `key` in a file of "key: number" or "key number" lines; -1: not there. */
static int64_t number_after(const char *path, const char *key)
{
    char line[LINE];
    int64_t value = -1;
    size_t n = strlen(key);
    FILE *f = fopen(path, "r");
    if (!f)
        return -1;
    while (value < 0 && fgets(line, sizeof(line), f)) {
        if (strncmp(line, key, n) == 0 && strchr(": \t", line[n]))
            (void)sscanf(line + n + 1, "%" SCNd64, &value); // NOLINT(cert-err34-c)
    }
    (void)fclose(f);
    return value;
}

/* A file that is one number; INT64_MAX for "max", -1 when it is not there. */
static int64_t number_in(const char *folder, const char *name)
{
    char path[PATH], text[64] = "";
    int64_t value = -1;
    if ((size_t)snprintf(path, sizeof(path), "%s/%s", folder, name) >= sizeof(path))
        return -1;
    FILE *f = fopen(path, "r");
    if (!f)
        return -1;
    if (fgets(text, sizeof(text), f) && strncmp(text, "max", 3) == 0)
        value = INT64_MAX;
    else if (sscanf(text, "%" SCNd64, &value) != 1) // NOLINT(cert-err34-c)
        value = -1;
    (void)fclose(f);
    return value;
}

/* ---- control groups -------------------------------------------------------------------------- */

/* What the two versions call the same things. */
struct controller {
    const char *limit, *usage, *inactive, *active;
};
static const struct controller v1 = {"memory.limit_in_bytes", "memory.usage_in_bytes",
                                     "total_inactive_file", "total_active_file"};
static const struct controller v2 = {"memory.max", "memory.current", "inactive_file",
                                     "active_file"};

static void look_at_group(const struct controller *c, const char *folder, const char *name,
                          struct host_memory *out)
{
    char stat[PATH];
    int64_t limit = number_in(folder, c->limit), usage = number_in(folder, c->usage);
    if (limit < 0 || limit == INT64_MAX || usage < 0 ||
        (size_t)snprintf(stat, sizeof(stat), "%s/memory.stat", folder) >= sizeof(stat))
        return;
    int64_t cached = MAX(number_after(stat, c->inactive), (int64_t)0) +
                     MAX(number_after(stat, c->active), (int64_t)0);
    int64_t free_bytes = MAX(limit - MAX(usage - cached, (int64_t)0), (int64_t)0);
    if (free_bytes >= out->free_bytes)
        return;
    out->total_bytes = limit;
    out->free_bytes = free_bytes;
    (void)snprintf(out->whose, sizeof(out->whose), "cgroup %.240s", *name ? name : "/");
}

/* From the group of this process up to the one that is mounted. */
static void look_at_groups(const struct controller *c, const char *mount, const char *group,
                           struct host_memory *out)
{
    char folder[PATH];
    size_t n_mount = strlen(mount);
    if ((size_t)snprintf(folder, sizeof(folder), "%s%s", mount, group) >= sizeof(folder))
        return;
    for (;;) {
        look_at_group(c, folder, folder + n_mount, out);
        char *slash = strrchr(folder + n_mount, '/');
        if (!slash)
            return;
        *slash = '\0';
    }
}

/* The group of this process: the line of /proc/self/cgroup whose controllers are `controller`
 * ("" in version 2). */
static bool own_group(const char *root, const char *controller, char *out, size_t size)
{
    char path[PATH], line[LINE];
    bool found = false;
    (void)snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);
    FILE *f = fopen(path, "r");
    if (!f)
        return false;
    while (!found && fgets(line, sizeof(line), f)) {
        line[strcspn(line, "\n")] = '\0';
        char *names = strchr(line, ':');
        char *group = names ? strchr(names + 1, ':') : NULL;
        if (!group)
            continue;
        *group++ = '\0';
        for (char *name = names + 1, *next; name && !found; name = next) {
            next = strchr(name, ',');
            if (next)
                *next++ = '\0';
            found = strcmp(name, controller) == 0;
        }
        if (found)
            (void)snprintf(out, size, "%s", strcmp(group, "/") == 0 ? "" : group);
    }
    (void)fclose(f);
    return found;
}

/* A mount may show only a part of the tree (containers): the group's name inside of it. */
static const char *inside(const char *group, const char *mounted)
{
    size_t n = strcmp(mounted, "/") == 0 ? 0 : strlen(mounted);
    if (strncmp(group, mounted, n) == 0 && (group[n] == '/' || group[n] == '\0'))
        return group + n;
    return ""; /* the process's own group is what is mounted */
}

/* One line of /proc/self/mountinfo: "36 35 98:0 /mounted /where options - type source options". */
static void look_at_mount(const char *root, const char *line, struct host_memory *out)
{
    char mounted[PATH], where[PATH], type[32], options[512], group[PATH], folder[2 * PATH];
    const char *rest = strstr(line, " - ");
    if (!rest || sscanf(line, "%*d %*d %*s %4095s %4095s", mounted, where) != 2 ||
        sscanf(rest, " - %31s %*s %511s", type, options) != 2)
        return;
    bool second = strcmp(type, "cgroup2") == 0;
    if (!second && (strcmp(type, "cgroup") != 0 || !strstr(options, "memory")))
        return;
    if (!own_group(root, second ? "" : "memory", group, sizeof(group)))
        return;
    (void)snprintf(folder, sizeof(folder), "%s%s", root, where);
    look_at_groups(second ? &v2 : &v1, folder, inside(group, mounted), out);
}

/* ---- limits of the process ------------------------------------------------------------------- */

static const struct limit {
    const char *name, *used, *whose; /* in limits; in status; to a shell */
} limits[] = {
    {"Max address space", "VmSize", "ulimit -v"},
    {"Max data size", "VmData", "ulimit -d"},
};

/* Lines "name  soft limit  hard limit  unit", in columns. */
static void look_at_limits(const char *root, struct host_memory *out)
{
    char path[PATH], status[PATH];
    (void)snprintf(path, sizeof(path), "%s/proc/self/limits", root);
    (void)snprintf(status, sizeof(status), "%s/proc/self/status", root);
    for (size_t i = 0; i < ARRAY_LEN(limits); i++) {
        int64_t most = number_after(path, limits[i].name);
        int64_t used = MAX(number_after(status, limits[i].used), (int64_t)0) * 1024;
        if (most < 0 || MAX(most - used, (int64_t)0) >= out->free_bytes)
            continue;
        out->total_bytes = most;
        out->free_bytes = MAX(most - used, (int64_t)0);
        (void)snprintf(out->whose, sizeof(out->whose), "%s", limits[i].whose);
    }
}

void host_memory_read(const char *root, struct host_memory *out)
{
    char path[PATH], line[LINE];
    *out = (struct host_memory){INT64_MAX, INT64_MAX, "the machine"};
    (void)snprintf(path, sizeof(path), "%s/proc/meminfo", root);
    int64_t total = number_after(path, "MemTotal"), available = number_after(path, "MemAvailable");
    if (total > 0 && available >= 0) {
        out->total_bytes = total * 1024;
        out->free_bytes = available * 1024;
    }
    (void)snprintf(path, sizeof(path), "%s/proc/self/mountinfo", root);
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof(line), f))
        look_at_mount(root, line, out);
    if (f)
        (void)fclose(f);
    look_at_limits(root, out);
}

int64_t process_locked_limit(void)
{
    return number_after("/proc/self/limits", "Max locked memory");
}

/* ---- this process ---------------------------------------------------------------------------- */

static int64_t own_status(const char *key)
{
    return MAX(number_after("/proc/self/status", key), (int64_t)0) * 1024;
}

int64_t process_resident(void)
{
    return own_status("VmRSS");
}

int64_t process_peak(void)
{
    return own_status("VmHWM");
}

void process_forget_peak(void)
{
    int fd = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    (void)!write(fd, "5", 1); /* proc(5): the peak becomes what is resident now */
    (void)close(fd);
}

int64_t process_anonymous(void)
{
    return own_status("RssAnon");
}

/* Bytes of [first, last) that are in no page of this process. A number of /proc/self/pagemap stands
 * for each page, its highest bit for "is present". */
static int64_t bytes_not_resident(int pagemap, uint64_t first, uint64_t last)
{
    uint64_t entry[512], page = (uint64_t)sysconf(_SC_PAGESIZE);
    int64_t n_left = 0;
    for (uint64_t at = first / page; at < last / page;) {
        size_t n = MIN(ARRAY_LEN(entry), (size_t)(last / page - at));
        ssize_t n_read = pread(pagemap, entry, n * sizeof(*entry), (off_t)(at * sizeof(*entry)));
        if (n_read < (ssize_t)sizeof(*entry))
            return 0;
        n = (size_t)n_read / sizeof(*entry);
        for (size_t i = 0; i < n; i++)
            n_left += entry[i] >> 63 == 0;
        at += n;
    }
    return n_left * (int64_t)page;
}

/* The program's and the C library's: of other libraries most is never run. A mapping is a line
 * "first-last rwxp offset device inode path". (smaps knows how much of it is resident, but looks at
 * every page of the process for that, of which there may be millions.) */
int64_t process_code_left(void)
{
    char line[LINE], program[PATH] = "", path[PATH], access[8];
    uint64_t first, last;
    int64_t left = 0;
    FILE *f = fopen("/proc/self/maps", "r");
    int pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    ssize_t n = readlink("/proc/self/exe", program, sizeof(program) - 1);
    while (f && pagemap >= 0 && n > 0 && fgets(line, sizeof(line), f)) {
        int n_fields = sscanf(line, "%" SCNx64 "-%" SCNx64 " %7s %*s %*s %*s %4095[^\n]", &first,
                              &last, access, path); // NOLINT(cert-err34-c)
        if (n_fields == 4 && access[2] == 'x' &&
            (strcmp(path, program) == 0 || strstr(path, "/libc.so")))
            left += bytes_not_resident(pagemap, first, last);
    }
    if (f)
        (void)fclose(f);
    if (pagemap >= 0)
        (void)close(pagemap);
    return left;
}
