/* Fuzz target: any bytes as the text of a program over a fixed graph. What parses prints, what was
 * printed parses into the same text again, and the check says yes or no without breaking. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "program/program.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

/* A step of one layer: forward, gradient, update. The corpus holds programs of it. */
static const char step[] = "graph \"step\" {\n"
                           "  %0 \"x\": f32[4,8] input\n"
                           "  %1 \"w\": f32[8,8] parameter\n"
                           "  %2 \"lr\": f32[1] input\n"
                           "  %3 \"step\": i32[1] input\n"
                           "  %4 \"scale\": f32[1] input\n"
                           "  %5: f32[4,8] activation = linear(%0, %1) forward block=0\n"
                           "  %6: f32[4,8] activation = gelu(%5) forward block=0\n"
                           "  %7: f32[4,8] activation = gelu_grad(%6, %5) backward block=0\n"
                           "  %8: f32[8,8] gradient = linear_grad_weight(%7, %0) backward block=0\n"
                           "  %9: f32[8,8] parameter = sgd(%1, %8, %2, %3, %4) update block=0\n"
                           "  output \"y\" %6\n"
                           "}\n";

struct world {
    struct graph *graph;
    struct device device;
    struct storage storage;
    struct program *emitted;
};

static const struct world *open_world(void)
{
    static struct world w; /* for the life of the fuzzer */
    struct plan plan;
    if (w.graph)
        return &w;
    BUG_ON(device_open_cpu(&w.device, 2) != OK);
    storage_init(&w.storage);
    BUG_ON(graph_parse(&w.graph, step) != OK);
    BUG_ON(plan_init(&plan, w.graph, 1) != OK);
    plan_set_home(&plan, w.graph, ROLE_PARAMETER, TIER_HOST);
    BUG_ON(program_emit(&w.emitted, "step", w.graph, &plan, &w.device, &w.storage) != OK);
    BUG_ON(program_place(w.emitted, &w.storage, NULL) != OK);
    BUG_ON(program_check(w.emitted, &w.storage) != OK);
    plan_release(&plan);
    return &w;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    const struct world *w = open_world();
    int64_t live = mem_live();
    struct str source = {0}, once = {0}, twice = {0};
    struct program *p = NULL, *again = NULL;
    str_add_n(&source, (const char *)data, n_bytes);
    if (program_parse(&p, str_text(&source), w->graph, &w->device) == OK) {
        (void)!program_check(p, &w->storage); /* may refuse, must not break */
        BUG_ON(program_print(p, &once) != OK);
        BUG_ON(program_parse(&again, once.text, w->graph, &w->device) != OK);
        BUG_ON(program_print(again, &twice) != OK);
        BUG_ON(strcmp(once.text, twice.text) != 0);
    } else {
        BUG_ON(p != NULL || status_message()[0] == '\0');
    }
    program_free(p);
    program_free(again);
    str_release(&source);
    str_release(&once);
    str_release(&twice);
    BUG_ON(mem_live() != live);
    return 0;
}
