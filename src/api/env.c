/* env.c: what this build and this machine are: the first thing a bug report needs. */
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "api/env_gpu.h"
#include "api/env_rates.h"
#include "base/host_memory.h"
#include "base/json_text.h"
#include "base/machine.h"
#include "graph/op.h"
#include "watch/http.h"
#include "watch/screen.h"

/* Optional parts; each is compiled in or named as absent. */
static bool absent(void)
{
    return false;
}

#if defined(SNUG_HAVE_CUDA) || defined(SNUG_HAS_URING)
static bool present(void)
{
    return true;
}
#endif

static const struct feature {
    const char *name, *what;
    bool (*is_present)(void);
} features[] = {
#ifdef SNUG_HAVE_CUDA
    {"cuda", "NVIDIA GPUs", present},
#else
    {"cuda", "NVIDIA GPUs", absent},
#endif
    {"mpi", "many processes", absent},
#ifdef SNUG_HAS_URING
    {"io_uring", "the disk tier without threads", present},
#else
    {"io_uring", "the disk tier without threads", absent},
#endif
    {"http", "the page of a run: --serve", http_is_built},
    {"ncurses", "the full screen of snug monitor", screen_is_built},
};

struct machine {
    char processor[128], system[256];
    int n_cores;
    int64_t memory_bytes;
    struct host_memory memory; /* what this process may take of it */
    struct device device;
    struct gpu_view gpu;
    struct rates_view rates;
};

static enum status look(struct machine *m, const struct snug_env_options *o)
{
    struct utsname u;
    *m = (struct machine){0};
    if (uname(&u) == 0)
        (void)snprintf(m->system, sizeof(m->system), "%s %s %s", u.sysname, u.release, u.machine);
    processor_name(m->processor, sizeof(m->processor));
    m->n_cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
    int64_t page = sysconf(_SC_PAGESIZE);
    m->memory_bytes = sysconf(_SC_PHYS_PAGES) * page;
    host_memory_read("", &m->memory);
    TRY(rates_view_take(&m->rates, o));
    gpu_view_take(&m->gpu);
    return device_open_cpu_cached(&m->device, 0, o->cache_folder);
}

static const char *compiler(void)
{
#if defined(__clang__)
    return "clang " __clang_version__;
#elif defined(__GNUC__)
    return "gcc " __VERSION__;
#else
    return "unknown";
#endif
}

/* ---- text ------------------------------------------------------------------------------------ */

static void add_ops(struct str *s, const struct device *d)
{
    str_addf(s, "\nops (%d), kernels fastest first:\n", (int)OP_COUNT);
    for (int i = 0; i < OP_COUNT; i++) {
        const struct op_def *op = op_get((enum op_id)i);
        str_addf(s, "  %-26s %s\n", op->name, op->synopsis);
        const struct kernel *k = d->ops->kernels((enum op_id)i);
        str_addf(s, "  %-26s   %s:", "", d->ops->name);
        for (; k && k->name; k++)
            str_addf(s, " %s", k->name);
        str_add(s, op->no_grad ? "; no gradient\n" : "\n");
    }
}

static void add_machine(struct str *s, const struct machine *m)
{
    char total[BYTES_TEXT], available[BYTES_TEXT];
    str_addf(s, "snug %s, %s\n", SNUG_VERSION, compiler());
    str_addf(s, "system       %s\n", m->system);
    str_addf(s, "processor    %s, %d cores online\n", m->processor, m->n_cores);
    str_addf(s, "memory       %s; %s free", format_bytes(total, m->memory_bytes),
             format_bytes(available, m->memory.free_bytes));
    str_addf(s, " of %s's %s\n", m->memory.whose, format_bytes(total, m->memory.total_bytes));
    str_addf(s, "device       %s\n", m->device.description);
    str_addf(s,
             "rates        %.1f GFLOP/s in a large f32 product, %.1f GB/s memory, %.1f GB/s "
             "copies (measured now)\n",
             m->device.rates.matmul_flops / 1e9, m->device.rates.memory_bytes / 1e9,
             m->device.rates.links[TIER_HOST][TIER_DEVICE].alone / 1e9);
    gpu_view_text(&m->gpu, s);
    rates_view_text(&m->rates, s);
    for (size_t i = 0; i < ARRAY_LEN(features); i++)
        str_addf(s, "%-12s %-9s %-4s (%s)\n", i == 0 ? "features" : "", features[i].name,
                 features[i].is_present() ? "yes" : "no", features[i].what);
}

enum snug_status snug_env_text(const struct snug_env_options *o, char **text)
{
    struct str s = {0};
    struct machine m;
    enum status status = look(&m, o);
    if (status == OK) {
        add_machine(&s, &m);
        if (o->ops)
            add_ops(&s, &m.device);
        device_close(&m.device);
        status = str_status(&s);
    }
    return hand_out(&s, status, text);
}

/* ---- JSON
 * -----------------------------------------------------------------------------------------------
 */

static json_t *pack_features(void)
{
    json_t *o = json_object();
    for (size_t i = 0; o && i < ARRAY_LEN(features); i++) {
        if (json_object_set_new(o, features[i].name, json_boolean(features[i].is_present())) != 0)
            return NULL;
    }
    return o;
}

static json_t *pack_kernels(const struct kernel *k)
{
    json_t *names = json_array();
    for (; names && k && k->name; k++) {
        if (json_array_append_new(names, json_string(k->name)) != 0)
            return NULL;
    }
    return names;
}

static json_t *pack_ops(const struct device *d)
{
    json_t *ops = json_array();
    for (int i = 0; ops && i < OP_COUNT; i++) {
        const struct op_def *op = op_get((enum op_id)i);
        json_t *row = json_pack("{s:s, s:s, s:b, s:o}", "name", op->name, "synopsis", op->synopsis,
                                "differentiable", !op->no_grad, "kernels",
                                pack_kernels(d->ops->kernels((enum op_id)i)));
        if (json_array_append_new(ops, row) != 0)
            return NULL;
    }
    return ops;
}

static json_t *pack_machine(const struct machine *m)
{
    const struct device_rates *r = &m->device.rates;
    return json_pack(
        "{s:s, s:s, s:s, s:s, s:i, s:I, s:I, s:{s:s, s:I}, s:s, s:{s:f, s:f, s:f}, "
        "s:o, s:o, s:o}",
        "version", SNUG_VERSION, "compiler", compiler(), "system", m->system, "processor",
        m->processor, "cores", m->n_cores, "memory_bytes", (json_int_t)m->memory_bytes,
        "free_bytes", (json_int_t)m->memory.free_bytes, "memory_limit", "whose", m->memory.whose,
        "bytes", (json_int_t)m->memory.total_bytes, "device", m->device.description, "rates",
        "matmul_flops", r->matmul_flops, "memory_bytes_per_s", r->memory_bytes, "copy_bytes_per_s",
        r->links[TIER_HOST][TIER_DEVICE].alone, "gpu", gpu_view_json(&m->gpu), "measured",
        rates_view_json(&m->rates), "features", pack_features());
}

enum snug_status snug_env_json(const struct snug_env_options *o, char **text)
{
    struct str s = {0};
    struct machine m;
    enum status status = look(&m, o);
    if (status == OK) {
        json_t *root = pack_machine(&m);
        if (root && o->ops && json_object_set_new(root, "ops", pack_ops(&m.device)) != 0) {
            json_decref(root);
            root = NULL;
        }
        device_close(&m.device);
        status = json_text_take(root, JSON_INDENT(2), &s);
    }
    return hand_out(&s, status, text);
}

enum snug_status snug_env_require_gpu(void)
{
    struct device d;
    enum status status = device_open_cuda(&d, 0);
    if (status == OK)
        device_close(&d);
    return public_status(status);
}
