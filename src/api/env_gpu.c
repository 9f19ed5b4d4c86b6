#include "api/env_gpu.h"

#include <stdio.h>

#include "device/card/card.h"

const char *snug_gpu_name(size_t i)
{
    return i < (size_t)card_count() ? card_at((int)i)->name : NULL;
}

static enum status look_inside(struct gpu_view *v)
{
    struct device d;
    TRY(device_open_cuda(&d, v->facts.index));
    enum status status = d.ops->room(&d, &v->room);
    v->context_bytes = d.ops->context_bytes(&d);
    v->rates = d.rates;
    device_close(&d);
    return status;
}

void gpu_view_take(struct gpu_view *v)
{
    *v = (struct gpu_view){0};
    gpu_look(&v->facts, 0);
    gpu_look_closer(&v->facts);
    v->usable = look_inside(v) == OK;
    if (!v->usable)
        (void)snprintf(v->problem, sizeof(v->problem), "%s", status_message());
}

/* ---- text ------------------------------------------------------------------------------------ */

static const char *or_none(const char *text)
{
    return *text ? text : "not found";
}

static void version(char *out, size_t n_out, int cuda)
{
    (void)snprintf(out, n_out, "%d.%d", cuda / 1000, cuda % 1000 / 10);
}

static void add_line(struct str *out, const char *name)
{
    str_addf(out, "%-12s ", name);
}

static void add_versions(struct str *out, const struct gpu_facts *f)
{
    char known[16], built[16];
    version(known, sizeof(known), f->driver_cuda);
    version(built, sizeof(built), f->runtime_cuda);
    add_line(out, "");
    if (f->driver_cuda > 0)
        str_addf(out, "driver %s%s(CUDA %s); ", f->driver, *f->driver ? " " : "", known);
    str_addf(out, "this build CUDA %s, cuBLASLt %s, cuDNN %s; NCCL %s\n", built,
             or_none(f->cublaslt), or_none(f->cudnn), or_none(f->nccl));
}

static void add_memory(struct str *out, const struct gpu_view *v)
{
    char total[BYTES_TEXT], available[BYTES_TEXT], context[BYTES_TEXT];
    struct str holders = {0};
    room_add_holders(&v->room, &holders);
    add_line(out, "");
    str_addf(out, "memory %s, %s free; a process needs %s (%lld bytes) beside its arenas\n",
             format_bytes(total, v->room.total_bytes),
             format_bytes(available, room_available(&v->room)),
             format_bytes(context, v->context_bytes), (long long)v->context_bytes);
    add_line(out, "");
    str_addf(out, "%s\n", holders.n ? str_text(&holders) : "nobody else uses it");
    str_release(&holders);
}

static void add_rates(struct str *out, const struct gpu_view *v)
{
    add_line(out, "");
    str_addf(out, "bf16 %s, tf32 %s\n",
             v->facts.bf16 ? "yes" : "no (use fp16: true, or 32-bit numbers)",
             v->facts.tf32 ? "yes" : "no");
    add_line(out, "");
    str_addf(out,
             "%.1f TFLOP/s in a large 16-bit product, %.1f in f32, %.0f GB/s memory, %.1f us a "
             "launch, %.1f us a wait (measured now)\n",
             v->rates.half_matmul_flops / 1e12, v->rates.matmul_flops / 1e12,
             v->rates.memory_bytes / 1e9, v->rates.launch_s * 1e6, v->rates.wait_s * 1e6);
    const struct link_rate *in = &v->rates.links[TIER_HOST][TIER_DEVICE],
                           *back = &v->rates.links[TIER_DEVICE][TIER_HOST];
    add_line(out, "");
    str_addf(out,
             "link to the host: %.1f GB/s in, %.1f GB/s out; %.1f and %.1f GB/s both at once\n",
             in->alone / 1e9, back->alone / 1e9, in->both / 1e9, back->both / 1e9);
}

void gpu_view_text(const struct gpu_view *v, struct str *out)
{
    const struct gpu_facts *f = &v->facts;
    add_line(out, "gpu");
    if (*f->name)
        str_addf(out, "%s, compute capability %d.%d; this build has code for %s\n", f->name,
                 f->major, f->minor, f->architectures);
    if (!v->usable) {
        if (*f->name)
            add_line(out, "");
        str_addf(out, "not usable: %s\n", v->problem);
    }
    if (f->built)
        add_versions(out, f);
    if (v->usable) {
        add_memory(out, v);
        add_rates(out, v);
    }
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static json_t *pack_holders(const struct device_room *r)
{
    json_t *list = json_array();
    for (int i = 0; list && i < r->n_holders; i++) {
        const struct device_holder *h = &r->holders[i];
        json_t *row = json_pack("{s:I, s:s, s:I}", "pid", (json_int_t)h->pid, "name", h->name,
                                "bytes", (json_int_t)h->n_bytes);
        if (json_array_append_new(list, row) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

/* What is only known of a GPU that was opened. */
static json_t *pack_inside(const struct gpu_view *v)
{
    const struct device_room *r = &v->room;
    const struct link_rate *in = &v->rates.links[TIER_HOST][TIER_DEVICE],
                           *back = &v->rates.links[TIER_DEVICE][TIER_HOST];
    return json_pack(
        "{s:I, s:I, s:I, s:b, s:o, s:I, s:{s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}}",
        "total_bytes", (json_int_t)r->total_bytes, "free_bytes", (json_int_t)room_available(r),
        "others_bytes", (json_int_t)room_others(r), "processes_visible", r->sees_processes,
        "processes", pack_holders(r), "context_bytes", (json_int_t)v->context_bytes, "rates",
        "half_matmul_flops", v->rates.half_matmul_flops, "matmul_flops", v->rates.matmul_flops,
        "memory_bytes_per_s", v->rates.memory_bytes, "in_bytes_per_s", in->alone, "out_bytes_per_s",
        back->alone, "in_bytes_per_s_both", in->both, "out_bytes_per_s_both", back->both,
        "launch_s", v->rates.launch_s, "wait_s", v->rates.wait_s);
}

json_t *gpu_view_json(const struct gpu_view *v)
{
    const struct gpu_facts *f = &v->facts;
    char known[16], built[16], capability[16];
    version(known, sizeof(known), f->driver_cuda);
    version(built, sizeof(built), f->runtime_cuda);
    (void)snprintf(capability, sizeof(capability), "%d.%d", f->major, f->minor);
    json_t *o = json_pack(
        "{s:b, s:b, s:s, s:i, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:b, s:b}", "built",
        f->built, "usable", v->usable, "problem", v->problem, "count", f->n_gpus, "name", f->name,
        "compute_capability", capability, "architectures", f->architectures, "driver", f->driver,
        "driver_cuda", known, "runtime_cuda", built, "cublaslt", f->cublaslt, "cudnn", f->cudnn,
        "nccl", f->nccl, "bf16", f->bf16, "tf32", f->tf32);
    if (o && v->usable && json_object_update_new(o, pack_inside(v)) != 0) {
        json_decref(o);
        return NULL;
    }
    return o;
}
