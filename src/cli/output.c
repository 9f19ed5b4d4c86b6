/* output.c: plans and runs in words. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "cli/cli.h"

enum { LABEL = 10 }; /* the text of a report's line stands behind its label */

enum snug_status print_text(char *text)
{
    size_t n = strlen(text);
    const char *end = n > 0 && text[n - 1] == '\n' ? "" : "\n";
    bool written = fputs(text, stdout) >= 0 && fputs(end, stdout) >= 0 && fflush(stdout) == 0;
    snug_free(text);
    if (written)
        return SNUG_OK;
    (void)FAIL(ERR_IO, "stdout could not be written");
    return SNUG_ERR_IO;
}

enum snug_status print_json(struct cli *cli, char *text)
{
    if (!text)
        return SNUG_OK;
    cli->printed_json = true;
    signals_owe_json(false);
    return print_text(text);
}

/* ---- parts ----------------------------------------------------------------------------------- */

static void show_model(const struct snug_forecast *f)
{
    char all[BYTES_TEXT], trained[BYTES_TEXT], tokens[BYTES_TEXT], active[BYTES_TEXT + 24] = "";
    char words[64] = "", length[64] = "";
    if (f->n_active < f->n_params)
        (void)snprintf(active, sizeof(active), ", %s active for a token",
                       format_count(tokens, f->n_active));
    if (f->vocab_size > 0)
        (void)snprintf(words, sizeof(words), ", vocabulary %lld", (long long)f->vocab_size);
    if (f->vocab_size > 0)
        (void)snprintf(length, sizeof(length), " x %lld tokens", (long long)f->seq_len);
    show_line(LABEL, "model     %s, %s parameters (%s trained%s), %lld %s%s, %s", f->model,
              format_count(all, f->n_params), format_count(trained, f->n_trainable), active,
              (long long)f->n_layers, f->vocab_size > 0 ? "layers" : "blocks", words, f->precision);
    show_line(LABEL, "weights   %s", f->weights ? f->weights : "from scratch");
    show_line(LABEL, "device    %s", f->device);
    const char *many = f->vocab_size > 0 ? "sequences" : f->unit;
    show_line(LABEL, "batch     %lld %.*s x %lld accumulated x %lld rank%s%s = %s %s per step",
              (long long)f->micro_batch, (int)strlen(many) - (f->micro_batch == 1), many,
              (long long)f->n_micro, (long long)f->n_ranks, f->n_ranks == 1 ? "" : "s", length,
              format_count(tokens, f->tokens_per_step), f->unit);
}

static void show_row(const char *name, int64_t n_bytes, double share, const char *note)
{
    char text[BYTES_TEXT], exact[BYTES_TEXT], percent[16] = "";
    if (share >= 0)
        (void)snprintf(percent, sizeof(percent), "%5.1f%%", 100.0 * share);
    enum { WHOLE_ROW = 54 };
    if (log_columns() > 0 && log_columns() < WHOLE_ROW)
        log_info("  %-14s %10s  %6s", name, format_bytes(text, n_bytes), percent);
    else
        show_line(4, "  %-14s %10s  %6s  %16s%s%s", name, format_bytes(text, n_bytes), percent,
                  format_count(exact, n_bytes), *note ? "  " : "", note);
}

/* The host's arena; what it is for where tensors have left the device. */
static void show_host(const struct snug_forecast *f)
{
    bool has_tensors = f->disk_bytes > 0; /* they pass through the host */
    char name[32];
    int64_t unused = f->host_bytes;
    for (int c = 0; c < SNUG_MEMORY_COUNT; c++) {
        has_tensors = has_tensors || (c < SNUG_MEMORY_WORKSPACE && f->host_breakdown[c] > 0);
        unused -= f->host_breakdown[c];
    }
    show_row("host", f->host_bytes, -1,
             has_tensors ? "bytes; what has left the device, inputs, outputs, data read ahead"
                         : "bytes; inputs, outputs, data read ahead");
    for (int c = 0; has_tensors && c < SNUG_MEMORY_COUNT; c++) {
        (void)snprintf(name, sizeof(name), "- %s", snug_memory_name((enum snug_memory)c));
        if (f->host_breakdown[c] > 0)
            show_row(name, f->host_breakdown[c],
                     (double)f->host_breakdown[c] / (double)f->host_bytes, "");
    }
    if (has_tensors && unused > 0)
        show_row("- unused", unused, (double)unused / (double)f->host_bytes,
                 "(gaps between buffers)");
}

/* What is on disk, how fast that is, and what it does to the disk. */
static void show_disk(const struct snug_forecast *f)
{
    char name[32], read[BYTES_TEXT], written[BYTES_TEXT], day[BYTES_TEXT];
    double per_day = f->step_s > 0 ? (double)f->disk_written * 86400 / f->step_s : 0;
    show_row("disk", f->disk_bytes, -1, "bytes; a file that is gone when the process ends");
    for (int c = 0; c < SNUG_MEMORY_COUNT; c++) {
        (void)snprintf(name, sizeof(name), "- %s", snug_memory_name((enum snug_memory)c));
        if (f->disk_breakdown[c] > 0)
            show_row(name, f->disk_breakdown[c],
                     (double)f->disk_breakdown[c] / (double)f->disk_bytes, "");
    }
    show_line(LABEL,
              "  in             %s: %.2f GB/s read, %.2f GB/s written; in turns %.2f, %.2f "
              "(measured)",
              f->disk_folder, f->disk_read_rate / 1e9, f->disk_write_rate / 1e9,
              f->disk_read_in_turns / 1e9, f->disk_write_in_turns / 1e9);
    show_line(LABEL, "  wear           a step reads %s and writes %s: %s written a day",
              format_bytes(read, f->disk_read), format_bytes(written, f->disk_written),
              format_bytes(day, (int64_t)MIN(per_day, 9e18)));
}

static void show_memory(const struct snug_forecast *f)
{
    char note[160];
    double arena = f->arena_bytes > 0 ? (double)f->arena_bytes : 1;
    show_line(LABEL, "memory    fullest in %s", f->fullest ? f->fullest : "the step");
    for (int c = 0; c < SNUG_MEMORY_COUNT; c++) {
        if (f->breakdown[c] > 0)
            show_row(snug_memory_name((enum snug_memory)c), f->breakdown[c],
                     (double)f->breakdown[c] / arena, "");
    }
    if (f->fragmentation > 0)
        show_row("unused", f->fragmentation, (double)f->fragmentation / arena,
                 "(gaps between buffers)");
    double above =
        f->arena_lower_bound > 0 ? (double)f->arena_bytes / (double)f->arena_lower_bound - 1.0 : 0;
    (void)snprintf(note, sizeof(note), "bytes; %.3f%% above the lower bound (layout: %s)",
                   100.0 * above, f->layout_method ? f->layout_method : "trivial");
    show_row("arena", f->arena_bytes, 1.0, note);
    show_host(f);
    show_row("data", f->data_bytes, -1, "bytes; to read data, before there is an arena");
    show_row("context", f->context_bytes, -1, "bytes; the process outside of these");
    show_row("process total", f->device_bytes, -1, "bytes; the most that the system will show");
    if (f->disk_bytes > 0)
        show_disk(f);
}

static void show_tier(const char *tier, int64_t needs, int64_t budget, bool is_given)
{
    char need[BYTES_TEXT], have[BYTES_TEXT], spare[BYTES_TEXT];
    bool over = needs > budget;
    show_line(LABEL, "  %-6s memory  %s of %s %s: %s %s", tier, format_bytes(need, needs),
              format_bytes(have, budget), is_given ? "given" : "that can be had",
              format_bytes(spare, over ? needs - budget : budget - needs),
              over ? "too little" : "to spare");
}

static void show_room(const struct snug_room *r)
{
    char total[BYTES_TEXT], available[BYTES_TEXT];
    if (r->free_bytes != SNUG_NO_BUDGET)
        show_line(LABEL, "  free           %s of %s's %s", format_bytes(available, r->free_bytes),
                  r->whose, format_bytes(total, r->total_bytes));
}

static void show_budget(const struct snug_forecast *f)
{
    show_line(LABEL, "budget    %s", f->fits ? "kept" : "not kept");
    if (f->memory_is_shared && !f->device_budget_given && !f->host_budget_given) {
        int64_t rest = f->device_budget == SNUG_NO_BUDGET ? 0 : f->host_needs;
        show_tier("all", f->device_needs + f->host_needs, f->device_budget + rest, false);
    } else {
        show_tier("device", f->device_needs, f->device_budget, f->device_budget_given);
        show_tier("host", f->host_needs, f->host_budget, f->host_budget_given);
    }
    if (f->disk_folder)
        show_tier("disk", f->disk_bytes, f->disk_budget, f->disk_budget_given);
    show_room(&f->device_room);
    if (!f->memory_is_shared)
        show_room(&f->host_room);
}

static void show_time(const struct snug_forecast *f)
{
    char step[BYTES_TEXT], rate[BYTES_TEXT], some[48] = "";
    if (f->n_by_rate > 0 && f->n_by_rate < f->n_kernels)
        (void)snprintf(some, sizeof(some), ", %d of %d by rate", f->n_by_rate, f->n_kernels);
    show_line(LABEL, "time      %s per step, %s %s/s, %.2f GFLOP useful (%s %s%s)",
              format_duration(step, f->step_s), format_rate(rate, f->tokens_per_s), f->unit,
              f->step_flops / 1e9, f->is_estimate ? "estimated for" : "predicted from",
              f->is_estimate ? f->device : f->step_source, some);
    show_line(LABEL, "recompute %d of %d blocks, %.2f GFLOP twice", f->n_blocks_recomputed,
              f->n_blocks, f->recompute_flops / 1e9);
}

/* Takes over the text. */
static void show_lines(const char *head, char *text)
{
    if (*text)
        log_info("%s", head);
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
        show_line(4, "  %s", line);
    snug_free(text);
}

static void show_decisions(const struct snug_run *run)
{
    char *text;
    if (snug_run_decisions(run, &text) == SNUG_OK)
        show_lines("decided without being asked:", text);
}

/* ---- whole reports --------------------------------------------------------------------------- */

void show_plan(const struct snug_run *run)
{
    struct snug_forecast f;
    snug_run_forecast(run, &f);
    show_model(&f);
    show_memory(&f);
    show_budget(&f);
    show_time(&f);
    show_decisions(run);
}

void show_banner(const struct snug_run *run)
{
    struct snug_forecast f;
    snug_run_forecast(run, &f);
    show_model(&f);
    show_memory(&f);
    show_budget(&f);
    show_time(&f);
    show_line(LABEL, "output    %s", f.output_dir);
}

enum snug_status show_prospects(const struct snug_run *run)
{
    char *text;
    enum snug_status status = snug_run_prospects(run, &text);
    if (status == SNUG_OK)
        show_lines("what would change it:", text);
    return status;
}

enum snug_status show_timeline(const struct snug_run *run)
{
    char *text;
    if (log_get_level() < LOG_INFO)
        return SNUG_OK;
    enum { AROUND = 21, LEAST = 8, MOST = 144, ROWS = 12 }; /* labels, and the word "budget" */
    int room = log_columns() > 0 ? log_columns() - AROUND : 72;
    enum snug_status status = snug_run_timeline(run, room < LEAST ? LEAST : MIN(room, (int)MOST),
                                                ROWS, log_use_colour() != 0, &text);
    if (status != SNUG_OK)
        return status;
    size_t n = strlen(text);
    while (n > 0 && text[n - 1] == '\n')
        text[--n] = '\0';
    log_info("%s", text);
    snug_free(text);
    return SNUG_OK;
}

void show_summary(const struct snug_run *run, enum snug_status status)
{
    struct snug_train_result r;
    struct snug_forecast f;
    char total[BYTES_TEXT], step[BYTES_TEXT], rate[BYTES_TEXT], predicted[BYTES_TEXT],
        measured[BYTES_TEXT];
    snug_run_result(run, &r);
    snug_run_forecast(run, &f);
    if (r.n_steps == 0)
        return;
    show_line(LABEL, "%s %lld steps in %s, median step %s, %s %s/s, MFU %.0f%%, last loss %.4f",
              status == SNUG_OK ? "done:" : "ended:", (long long)r.n_steps,
              format_duration(total, r.seconds), format_duration(step, r.median_step_s),
              format_rate(rate, r.tokens_per_s), f.unit, 100.0 * r.mfu, r.losses[r.n_kept - 1]);
    show_line(LABEL, "arena     predicted %s bytes, measured %s: %s",
              format_count(predicted, f.arena_bytes), format_count(measured, r.arena_bytes),
              f.arena_bytes == r.arena_bytes ? "equal" : "NOT EQUAL (please report this)");
    if (f.disk_bytes > 0)
        show_line(LABEL, "disk      predicted %s bytes, measured %s: %s",
                  format_count(predicted, f.disk_bytes), format_count(measured, r.disk_bytes),
                  f.disk_bytes == r.disk_bytes ? "equal" : "NOT EQUAL (please report this)");
    if (r.disk_read_rate > 0 || r.disk_write_rate > 0)
        show_line(LABEL,
                  "disk      predicted %.2f GB/s read, %.2f GB/s written; measured %.2f, %.2f, "
                  "busy %.0f%% of the time",
                  f.step_read_rate / 1e9, f.step_write_rate / 1e9, r.disk_read_rate / 1e9,
                  r.disk_write_rate / 1e9, 100.0 * r.disk_busy);
    show_line(LABEL, "process   predicted %s, measured %s (%+.1f%%)",
              format_bytes(predicted, f.device_bytes), format_bytes(measured, r.device_bytes),
              100.0 * ((double)r.device_bytes / (double)f.device_bytes - 1.0));
    if (r.resident_bytes != r.device_bytes) /* the device has memory of its own */
        show_line(LABEL, "host      predicted %s, measured %s (%+.1f%%)",
                  format_bytes(predicted, f.resident_bytes),
                  format_bytes(measured, r.resident_bytes),
                  100.0 * ((double)r.resident_bytes / (double)f.resident_bytes - 1.0));
    if (r.phases.has_phases)
        show_line(LABEL,
                  "jumps     %lld accepted (worth %.0f steps), %lld rejected, %lld withheld, %lld "
                  "undone; snapshots and probes took %.1f%% of the time",
                  (long long)r.phases.n_accepted, r.phases.n_jumped, (long long)r.phases.n_rejected,
                  (long long)r.phases.n_withheld, (long long)r.phases.n_undone,
                  100.0 * r.phases.share);
    if (r.control.has_control)
        show_line(
            LABEL,
            "control   %lld of %lld steps with predicted gradients; %lld of %lld measurements "
            "found that it pays, variance x%.3g at cost x%.3g; measuring took %.1f%% of the "
            "time",
            (long long)r.control.n_predicted, (long long)r.last_step, (long long)r.control.n_paid,
            (long long)r.control.n_measured, r.control.variance_ratio, r.control.cost_ratio,
            100.0 * r.control.share);
    show_line(LABEL, "saved     %s", r.last_checkpoint ? r.last_checkpoint : "nothing");
}
