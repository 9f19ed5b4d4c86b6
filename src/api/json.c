/* json.c: results as JSON objects. The keys are part of the interface: docs/snug.1 lists them. */
#include "base/json.h"
#include "api/api_internal.h"
#include "base/json_text.h"

static json_t *budget(int64_t n_bytes)
{
    return n_bytes == SNUG_NO_BUDGET ? json_null() : json_integer((json_int_t)n_bytes);
}

/* Adds a number; NULL (and `o` dropped) when out of memory. */
static json_t *with_number(json_t *o, const char *name, int64_t n)
{
    if (o && json_object_set_new(o, name, json_integer((json_int_t)n)) != 0) {
        json_decref(o);
        return NULL;
    }
    return o;
}

/* Adds the members of `more` and drops it; NULL (and `root` dropped) when out of memory. */
static json_t *merge(json_t *root, json_t *more)
{
    if (root && (!more || json_object_update(root, more) != 0)) {
        json_decref(root);
        root = NULL;
    }
    json_decref(more);
    return root;
}

static json_t *pack_classes(json_t *o, const int64_t by_class[SNUG_MEMORY_COUNT])
{
    for (int c = 0; c < SNUG_MEMORY_COUNT; c++)
        o = with_number(o, snug_memory_name((enum snug_memory)c), by_class[c]);
    return o;
}

static json_t *pack_breakdown(const struct snug_forecast *f)
{
    return pack_classes(json_pack("{s:I, s:I}", "context", (json_int_t)f->context_bytes,
                                  "fragmentation", (json_int_t)f->fragmentation),
                        f->breakdown);
}

static json_t *pack_decisions(const struct snug_forecast *f)
{
    json_t *o = json_pack("{s:i, s:I, s:b, s:i}", "blocks", f->n_blocks, "ring_bytes",
                          (json_int_t)f->ring_bytes, "defer_updates", f->defers_updates,
                          "micro_batch_group", f->micro_batch_group);
    for (int e = 0; e < SNUG_EXTENT_COUNT; e++)
        o = with_number(o, snug_extent_name((enum snug_extent)e), f->extents[e]);
    return o;
}

static json_t *pack_predicted(const struct snug_forecast *f)
{
    return json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:I, s:I, s:I, s:I, s:o, s:s, s:i, s:i, "
        "s:o, s:f, s:f}",
        "arena_bytes", (json_int_t)f->arena_bytes, "device_bytes", (json_int_t)f->device_bytes,
        "resident_bytes", (json_int_t)f->resident_bytes, "host_bytes", (json_int_t)f->host_bytes,
        "disk_bytes", (json_int_t)f->disk_bytes, "disk_read_per_step", (json_int_t)f->disk_read,
        "disk_written_per_step", (json_int_t)f->disk_written, "disk_read_rate", f->step_read_rate,
        "disk_write_rate", f->step_write_rate, "context_bytes", (json_int_t)f->context_bytes,
        "beside_bytes", (json_int_t)f->beside_bytes, "data_bytes", (json_int_t)f->data_bytes,
        "arena_lower_bound", (json_int_t)f->arena_lower_bound, "step_ms",
        json_finite(1e3 * f->step_s), "step_ms_source", f->step_source, "kernels", f->n_kernels,
        "kernels_by_rate", f->n_by_rate, "tokens_per_s", json_finite(f->tokens_per_s), "step_flops",
        f->step_flops, "recompute_flops", f->recompute_flops);
}

static json_t *pack_room(const struct snug_room *r)
{
    return json_pack("{s:s, s:o, s:o}", "whose", r->whose, "total_bytes", budget(r->total_bytes),
                     "free_bytes", budget(r->free_bytes));
}

static json_t *pack_budgets(const struct snug_forecast *f)
{
    return json_pack("{s:o, s:o, s:o, s:I, s:I, s:o, s:o}", "device_bytes",
                     budget(f->device_budget), "host_bytes", budget(f->host_budget), "disk_bytes",
                     budget(f->disk_budget), "device_needs", (json_int_t)f->device_needs,
                     "host_needs", (json_int_t)f->host_needs, "device_room",
                     pack_room(&f->device_room), "host_room", pack_room(&f->host_room));
}

static json_t *pack_planning(const struct snug_forecast *f)
{
    return json_pack("{s:f, s:f, s:f, s:f, s:b}", "opening_s", f->opening_s, "building_s",
                     f->building_s, "choosing_s", f->choosing_s, "timing_s", f->timing_s, "kept",
                     (int)f->was_kept);
}

static json_t *pack_forecast(const struct snug_forecast *f)
{
    json_t *batch = json_pack("{s:I, s:I, s:I, s:I, s:I}", "micro_batch",
                              (json_int_t)f->micro_batch, "accumulation", (json_int_t)f->n_micro,
                              "ranks", (json_int_t)f->n_ranks, "seq_len", (json_int_t)f->seq_len,
                              "tokens_per_step", (json_int_t)f->tokens_per_step);
    json_t *recompute =
        json_pack("{s:i, s:i}", "blocks", f->n_blocks, "recomputed", f->n_blocks_recomputed);
    return json_pack(
        "{s:b, s:s, s:s, s:I, s:I, s:I, s:s, s:s, s:s?, s:s?, s:s?, s:o, s:o, s:o, s:o, "
        "s:o, s:o, s:o, s:o}",
        "fits", f->fits, "binding", f->binding, "model", f->model, "params",
        (json_int_t)f->n_params, "trainable_params", (json_int_t)f->n_trainable, "active_params",
        (json_int_t)f->n_active, "precision", f->precision, "device", f->device, "weights",
        f->weights, "fullest", f->fullest, "layout", f->layout_method, "batch", batch, "budget",
        pack_budgets(f), "recompute", recompute, "predicted", pack_predicted(f), "breakdown",
        pack_breakdown(f), "host_breakdown", pack_classes(json_object(), f->host_breakdown),
        "decisions", pack_decisions(f), "planning", pack_planning(f));
}

/* What else there is, beside the plan that was taken. */
static json_t *pack_runner_up(const struct search_report *r, int i)
{
    const struct finding *f = &r->findings[i], *chosen = &r->findings[r->chosen];
    struct str differs = {0};
    finding_add_difference(f, chosen, &differs);
    json_t *o = json_pack("{s:i, s:o, s:o, s:I, s:I, s:s}", "rank", i + 1, "step_ms",
                          json_finite(1e3 * f->seconds), "slower_percent",
                          json_finite(100 * (f->seconds / chosen->seconds - 1)), "device_bytes",
                          (json_int_t)f->n_bytes[TIER_DEVICE], "host_bytes",
                          (json_int_t)f->n_bytes[TIER_HOST], "differs", str_text(&differs));
    str_release(&differs);
    return o;
}

static json_t *pack_runners_up(const struct search_report *r)
{
    json_t *all = json_array();
    for (int i = 0; all && i < r->n_findings; i++) {
        if (i != r->chosen && json_array_append_new(all, pack_runner_up(r, i)) != 0) {
            json_decref(all);
            return NULL;
        }
    }
    return json_pack("{s:i, s:o}", "plan_rank", r->chosen + 1, "runners_up", all);
}

static json_t *pack_losses(const struct snug_train_result *r)
{
    json_t *losses = json_array();
    for (int64_t i = 0; losses && i < r->n_kept; i++) {
        if (json_array_append_new(losses, json_finite(r->losses[i])) != 0) {
            json_decref(losses);
            return NULL;
        }
    }
    return losses;
}

/* NULL: there were none. */
static json_t *pack_phases(const struct snug_phases *p)
{
    if (!p->has_phases)
        return NULL;
    return json_pack("{s:I, s:I, s:I, s:I, s:f, s:f, s:f}", "accepted", (json_int_t)p->n_accepted,
                     "rejected", (json_int_t)p->n_rejected, "withheld", (json_int_t)p->n_withheld,
                     "undone", (json_int_t)p->n_undone, "jumped_steps", p->n_jumped, "seconds",
                     p->seconds, "share", p->share);
}

/* NULL: there were none. */
static json_t *pack_control(const struct snug_control *c)
{
    if (!c->has_control)
        return NULL;
    return json_pack("{s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:f}", "measured",
                     (json_int_t)c->n_measured, "paid", (json_int_t)c->n_paid, "predicted_steps",
                     (json_int_t)c->n_predicted, "variance_ratio", c->variance_ratio, "cost_ratio",
                     c->cost_ratio, "time_ratio", c->time_ratio, "seconds", c->seconds, "share",
                     c->share);
}

/* What training adds to the forecast. */
static json_t *pack_result(const struct snug_train_result *r)
{
    json_t *measured = json_pack(
        "{s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:I, s:f}", "arena_bytes", (json_int_t)r->arena_bytes,
        "device_bytes", (json_int_t)r->device_bytes, "host_bytes", (json_int_t)r->host_bytes,
        "disk_bytes", (json_int_t)r->disk_bytes, "disk_read_rate", r->disk_read_rate,
        "disk_write_rate", r->disk_write_rate, "disk_busy", r->disk_busy, "resident_bytes",
        (json_int_t)r->resident_bytes, "step_ms", 1e3 * r->median_step_s);
    json_t *scale = r->loss_scale > 0 ? json_real(r->loss_scale) : json_null();
    return json_pack("{s:o, s:o, s:o, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:s?, s:o*, s:o*}",
                     "measured", measured, "losses", pack_losses(r), "loss_scale", scale,
                     "skipped_steps", (json_int_t)r->n_skipped, "steps", (json_int_t)r->n_steps,
                     "last_step", (json_int_t)r->last_step, "tokens_per_s", r->tokens_per_s,
                     "samples_per_s", r->samples_per_s, "mfu", r->mfu, "seconds", r->seconds,
                     "last_checkpoint", r->last_checkpoint, "phases", pack_phases(&r->phases),
                     "control", pack_control(&r->control));
}

enum snug_status snug_run_json(const struct snug_run *run, enum snug_status status, char **text)
{
    struct str s = {0};
    struct snug_forecast f;
    /* First: packing must not touch the message. */
    json_t *error = status == SNUG_OK ? NULL : error_object(internal_status(status));
    snug_run_forecast(run, &f);
    json_t *root = merge(pack_forecast(&f), pack_runners_up(&run->session.engine.report));
    if (run->has_trained) {
        struct snug_train_result r;
        snug_run_result(run, &r);
        root = merge(root, pack_result(&r));
    }
    if (status != SNUG_OK)
        root = merge(root, json_pack("{s:o}", "error", error));
    return hand_out(&s, json_text_take(root, JSON_INDENT(2), &s), text);
}

enum snug_status snug_evaluation_json(const struct snug_evaluation *e, char **text)
{
    struct str s = {0};
    json_t *root = json_pack("{s:o}", "eval_loss", json_finite(e->loss));
    for (int i = 0; i < e->n_metrics; i++)
        root =
            merge(root, json_pack("{s:o}", e->metrics[i].name, json_finite(e->metrics[i].value)));
    root = merge(root, json_pack("{s:I, s:I, s:f, s:s?, s:s?}", "tokens", (json_int_t)e->n_tokens,
                                 "batches", (json_int_t)e->n_batches, "seconds", e->seconds,
                                 "weights", e->weights, "data", e->data));
    root = merge(root, json_pack("{s:{s:I}, s:{s:I}}", "predicted", "resident_bytes",
                                 (json_int_t)e->resident_predicted, "measured", "resident_bytes",
                                 (json_int_t)e->resident_bytes));
    return hand_out(&s, json_text_take(root, JSON_INDENT(2), &s), text);
}

enum snug_status snug_generation_json(const struct snug_generate_request *request,
                                      const struct snug_generation *g, char **text)
{
    struct str s = {0};
    json_t *tokens = json_array();
    for (int64_t i = 0; tokens && i < g->n_new_tokens; i++) {
        if (json_array_append_new(tokens, json_integer((json_int_t)g->tokens[i])) != 0) {
            json_decref(tokens);
            tokens = NULL;
        }
    }
    json_t *prompt = json_string(request->prompt ? request->prompt : "");
    json_t *root = json_pack(
        "{s:o, s:s, s:o, s:I, s:I, s:b, s:f, s:f, s:f, s:{s:I, s:I}, s:{s:I, s:I, s:I}, s:s?}",
        "prompt", prompt ? prompt : json_null(), "text", g->text, "tokens", tokens, "prompt_tokens",
        (json_int_t)g->n_prompt_tokens, "new_tokens", (json_int_t)g->n_new_tokens, "ended",
        g->ended, "prefill_s", g->prefill_s, "decode_s", g->decode_s, "tokens_per_s",
        g->decode_s > 0 ? (double)g->n_new_tokens / g->decode_s : 0.0, "predicted", "arena_bytes",
        (json_int_t)g->arena_predicted, "resident_bytes", (json_int_t)g->resident_predicted,
        "measured", "arena_bytes", (json_int_t)g->arena_bytes, "host_bytes",
        (json_int_t)g->host_bytes, "resident_bytes", (json_int_t)g->resident_bytes, "weights",
        g->weights);
    return hand_out(&s, json_text_take(root, JSON_INDENT(2), &s), text);
}

enum snug_status snug_tokenized_json(const struct snug_tokenized *t, const char *out_path,
                                     char **text)
{
    struct str s = {0};
    json_t *root = json_pack("{s:s, s:I, s:I, s:I, s:I}", "path", out_path, "tokens",
                             (json_int_t)t->n_tokens, "bytes", (json_int_t)t->n_bytes, "vocab_size",
                             (json_int_t)t->vocab_size, "unlabelled", (json_int_t)t->n_unlabelled);
    return hand_out(&s, json_text_take(root, JSON_INDENT(2), &s), text);
}

enum snug_status snug_exported_json(const struct snug_exported *e, const char *out_dir, char **text)
{
    struct str s = {0};
    json_t *root =
        json_pack("{s:s, s:s, s:I, s:I, s:s, s:s?}", "path", out_dir, "format",
                  e->is_gguf ? "gguf" : "hf", "params", (json_int_t)e->n_params, "tensors",
                  (json_int_t)e->n_tensors, "dtype", e->dtype, "weights", e->weights);
    return hand_out(&s, json_text_take(root, JSON_INDENT(2), &s), text);
}
