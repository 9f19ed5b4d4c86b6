/* Fuzz target: any bytes as the text of a graph. What parses prints, and what was printed parses
 * into the same text again. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "graph/graph.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    int64_t live = mem_live();
    struct str source = {0}, once = {0}, twice = {0};
    struct graph *g = NULL, *again = NULL;
    str_add_n(&source, (const char *)data, n_bytes);
    if (graph_parse(&g, str_text(&source)) == OK) {
        (void)!graph_check(g); /* may refuse, must not break */
        BUG_ON(graph_print(g, &once) != OK);
        BUG_ON(graph_parse(&again, once.text) != OK);
        BUG_ON(graph_print(again, &twice) != OK);
        BUG_ON(strcmp(once.text, twice.text) != 0);
    } else {
        BUG_ON(g != NULL || status_message()[0] == '\0');
    }
    graph_free(g);
    graph_free(again);
    str_release(&source);
    str_release(&once);
    str_release(&twice);
    BUG_ON(mem_live() != live);
    return 0;
}
