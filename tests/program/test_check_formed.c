/* Programs whose gradients are never whole, damaged: a slice that is not made, or made for another
 * reader's bytes; and that what they read for it is there until its last slice. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "program/damage.h"
#include "support/golden.h"

/* Two rows, and layers that make matrices of them. */
static const char config[] =
    "{\"model_type\": \"llama\", \"vocab_size\": 16, \"hidden_size\": 64,"
    " \"intermediate_size\": 128, \"num_hidden_layers\": 2, \"num_attention_heads\": 2,"
    " \"num_key_value_heads\": 1, \"max_position_embeddings\": 8, \"rms_norm_eps\": 1e-5,"
    " \"tie_word_embeddings\": false}";

static const struct setup formed = {
    .options = {.config = config, .batch = 1, .seq_len = 2, .max_grad_norm = 1.0},
    .ring_bytes = 4096,
    .slice_bytes = 8192,
    .forms = true};

static bool is_formed_slice(const struct program *p, size_t k)
{
    const struct instr *i = &p->instrs.items[k];
    return i->kind == INSTR_COMPUTE && i->slice.n > 0 &&
           op_get(graph_node(p->graph, i->node)->op)->by_rows;
}

/* Each slice is made as the next one of its gradient, or is the next gradient's. */
static void confuse_formed(struct tally *c)
{
    struct program *p = c->t->stage->program;
    struct instr *items = p->instrs.items;
    size_t before = 0;
    int n = 0;
    for (size_t k = 0; k < p->instrs.n; k++) {
        if (!is_formed_slice(p, k))
            continue;
        if (n++ > 0) {
            struct instr a = items[before], b = items[k];
            items[before].slice = b.slice;
            items[before].node = b.node;
            if (a.slice.first != b.slice.first || a.node != b.node)
                damage_expect_rejected(c, "a slice by another's name", (int)k);
            items[before] = b;
            items[k] = a;
            damage_expect_rejected(c, "two slices in each other's place", (int)k);
            items[before] = a;
            items[k] = b;
        }
        before = k;
    }
    assert_true(n > 20);
}

static void damaged_programs_of_formed_gradients_are_rejected_or_harmless(void **state)
{
    (void)state;
    damage_program(&formed, confuse_formed, "slices that are made for others");
    damage_program(&formed, drop_each_instruction, "dropped instructions");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(damaged_programs_of_formed_gradients_are_rejected_or_harmless),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
