/* plan_cards.c: `snug plan --gpu all`: the plan that would run on each card, one line each. */
#include <stdio.h>
#include <string.h>

#include "base/json_text.h"
#include "base/log.h"
#include "cli/points.h"

static void show_card(const char *name, const struct point *p)
{
    char rate[BYTES_TEXT], needs[BYTES_TEXT], has[BYTES_TEXT], host[BYTES_TEXT], lack[64];
    if (p->status != SNUG_OK) {
        show_line(15, "%-13s  cannot be planned: %s", name, p->message);
        return;
    }
    if (p->fits)
        show_line(15, "%-13s %10s  %10s of %-10s %10s  %s%s", name,
                  format_rate(rate, p->tokens_per_s), format_bytes(needs, p->device_needs),
                  format_bytes(has, p->device_budget), format_bytes(host, p->host_needs), p->text,
                  strncmp(p->precision, "f16", 3) == 0 ? "; fp16 with loss scaling" : "");
    else
        show_line(15, "%-13s %10s  %10s of %-10s %10s  does not fit, lacks %s", name, "-",
                  format_bytes(needs, p->device_needs), format_bytes(has, p->device_budget),
                  format_bytes(host, p->host_needs), point_lack(p, lack));
}

static enum snug_status add_json(json_t *rows, const char *name, const struct point *p)
{
    json_t *row = point_json(p);
    bool good = row && json_object_set_new(row, "gpu", json_string(name)) == 0;
    return json_array_append_new(rows, row) == 0 && good ? SNUG_OK : memory_error();
}

/* Plans for every card, or where one cannot be planned because of the config, for the first. */
static enum snug_status plan_all(struct cli *cli, json_t *rows, int *n_fit, struct point *last)
{
    const char *name;
    for (size_t i = 0; (name = snug_gpu_name(i)); i++) {
        point_plan(last, cli, name, NULL);
        if (i == 0 && last->status != SNUG_OK)
            return last->status;
        *n_fit += last->status == SNUG_OK && last->fits;
        show_card(name, last);
        enum snug_status status = add_json(rows, name, last);
        if (status != SNUG_OK)
            return status;
    }
    return SNUG_OK;
}

enum snug_status run_plan_cards(struct cli *cli)
{
    struct point last;
    struct str text = {0};
    json_t *rows = json_array();
    int n_fit = 0;
    if (!rows)
        return memory_error();
    log_info("%-13s %10s  %24s %10s  %s", "gpu", "tokens/s", "device memory", "host", "plan");
    enum snug_status status = plan_all(cli, rows, &n_fit, &last);
    if (status == SNUG_OK) {
        show_host_of(&last);
        show_line(4, "tokens/s are estimates from data sheets and the kernels of an H200");
    }
    if (status == SNUG_OK && n_fit == 0) {
        (void)FAIL(ERR_FIT, "does not fit on any of the cards; each line says what it lacks");
        status = SNUG_ERR_FIT;
    }
    if (cli->args.json && (status == SNUG_OK || status == SNUG_ERR_FIT)) {
        json_t *root = json_pack("{s:O}", "gpus", rows);
        if (json_text_take(root, JSON_INDENT(2), &text) == OK)
            (void)print_json(cli, str_take(&text));
        str_release(&text);
    }
    json_decref(rows);
    return status;
}
