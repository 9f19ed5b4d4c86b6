#include "watch/poll.h"

#include <ctype.h>
#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/host_memory.h"
#include "base/machine.h"
#include "device/cuda/runtime/nvml.h"

/* ---- processes ------------------------------------------------------------------------------- */

/* Memory of a process that is nobody else's: resident, without what it shares; 0: there is none. */
static int64_t private_bytes(const char *root, const char *pid)
{
    char path[512];
    int64_t resident = 0, shared = 0;
    (void)snprintf(path, sizeof(path), "%s/proc/%.20s/statm", root, pid);
    FILE *f = fopen(path, "re");
    if (!f)
        return 0;
    if (fscanf(f, "%*d %" SCNd64 " %" SCNd64, &resident, &shared) != 2)
        resident = shared = 0;
    (void)fclose(f);
    return MAX(resident - shared, (int64_t)0) * sysconf(_SC_PAGESIZE);
}

static void read_name(const char *root, int64_t pid, char *out, size_t size)
{
    char path[512];
    (void)snprintf(path, sizeof(path), "%s/proc/%" PRId64 "/comm", root, pid);
    out[0] = '\0';
    FILE *f = fopen(path, "re");
    if (!f)
        return;
    if (!fgets(out, (int)size, f))
        out[0] = '\0';
    out[strcspn(out, "\n")] = '\0';
    (void)fclose(f);
}

/* Keeps the largest, in order. */
static void keep(struct poll_memory *m, int64_t pid, int64_t n_bytes)
{
    int at = m->n_processes;
    while (at > 0 && m->processes[at - 1].n_bytes < n_bytes)
        at--;
    if (at == POLL_PROCESSES)
        return;
    m->n_processes = MIN(m->n_processes + 1, (int)POLL_PROCESSES);
    for (int i = m->n_processes - 1; i > at; i--)
        m->processes[i] = m->processes[i - 1];
    m->processes[at] = (struct device_holder){.pid = pid, .n_bytes = n_bytes};
}

static void find_processes(const char *root, int64_t own, struct poll_memory *m)
{
    char path[512];
    (void)snprintf(path, sizeof(path), "%s/proc", root);
    DIR *d = opendir(path);
    if (!d)
        return;
    for (const struct dirent *e = readdir(d); e; e = readdir(d)) {
        if (!isdigit((unsigned char)e->d_name[0]))
            continue;
        int64_t pid = strtoll(e->d_name, NULL, 10);
        int64_t n = pid == own || pid == getpid() ? 0 : private_bytes(root, e->d_name);
        if (n > 0)
            keep(m, pid, n);
    }
    (void)closedir(d);
    for (int i = 0; i < m->n_processes; i++)
        read_name(root, m->processes[i].pid, m->processes[i].name, sizeof(m->processes[i].name));
}

/* ---- memories -------------------------------------------------------------------------------- */

static void poll_host(const char *root, const struct live *l, struct poll_memory *m)
{
    struct host_memory h;
    char pid[24];
    host_memory_read(root, &h);
    *m = (struct poll_memory){.known = h.total_bytes < INT64_MAX,
                              .total_bytes = h.total_bytes,
                              .free_bytes = h.free_bytes};
    (void)snprintf(m->whose, sizeof(m->whose), "%.63s", h.whose);
    (void)snprintf(pid, sizeof(pid), "%" PRId64, l->run.pid);
    if (live_is_running(&l->run))
        m->own_bytes = private_bytes(root, pid);
    if (!m->known)
        return;
    m->others_bytes = MAX(m->total_bytes - m->free_bytes - m->own_bytes, (int64_t)0);
    find_processes(root, l->run.pid, m);
}

static void poll_gpu(struct poller *p, const struct live *l, struct poll_memory *m)
{
    struct device_room room = {0};
    *m = (struct poll_memory){.own_bytes = l->now.device_bytes};
    (void)snprintf(m->whose, sizeof(m->whose), "the GPU");
    if (!l->run.address[0])
        return;
    if (!p->looked_for_nvml)
        p->nvml = cuda_nvml_open(l->run.address);
    p->looked_for_nvml = true;
    m->known = cuda_nvml_memory(p->nvml, &room);
    if (!m->known)
        return;
    cuda_nvml_holders(p->nvml, &room);
    m->total_bytes = room.total_bytes;
    m->free_bytes = room.free_bytes;
    for (int i = 0; i < room.n_holders; i++) {
        if (room.holders[i].pid == l->run.pid)
            m->own_bytes = room.holders[i].n_bytes;
        else if (m->n_processes < POLL_PROCESSES)
            m->processes[m->n_processes++] = room.holders[i];
    }
    m->others_bytes = MAX(m->total_bytes - m->free_bytes - m->own_bytes, (int64_t)0);
}

/* "some avg10=0.00 avg60=..." and "full avg10=...". */
static void poll_pressure(const char *root, struct poll *out)
{
    char path[512], line[256];
    out->pressure_some = out->pressure_full = -1;
    (void)snprintf(path, sizeof(path), "%s/proc/pressure/memory", root);
    FILE *f = fopen(path, "re");
    if (!f)
        return;
    while (fgets(line, sizeof(line), f)) {
        (void)sscanf(line, "some avg10=%lf", &out->pressure_some); // NOLINT(cert-err34-c)
        (void)sscanf(line, "full avg10=%lf", &out->pressure_full); // NOLINT(cert-err34-c)
    }
    (void)fclose(f);
}

void poll_now(struct poller *p, const struct live *l, struct poll *out)
{
    const char *root = p->root ? p->root : "";
    *out = (struct poll){.time = now_s()};
    if (!l->run.is_shared)
        poll_gpu(p, l, &out->memory[MEMORY_DEVICE]);
    poll_host(root, l, &out->memory[MEMORY_HOST]);
    poll_pressure(root, out);
}

void poller_release(struct poller *p)
{
    cuda_nvml_close(p->nvml);
    *p = (struct poller){.root = p->root};
}
