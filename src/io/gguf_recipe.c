/* gguf_recipe.c: which type a tensor gets: as llama.cpp's own quantiser chooses. */
#include <string.h>
#include <strings.h>

#include "io/gguf_recipe.h"

static const struct {
    const char *name;
    enum gguf_type type;
    uint32_t id; /* general.file_type */
} recipes[GGUF_RECIPE_COUNT] = {
    [GGUF_ALL_F32] = {"f32", GGUF_F32, 0},       [GGUF_ALL_F16] = {"f16", GGUF_F16, 1},
    [GGUF_ALL_BF16] = {"bf16", GGUF_BF16, 32},   [GGUF_ALL_Q8_0] = {"q8_0", GGUF_Q8_0, 7},
    [GGUF_MOST_Q4_0] = {"q4_0", GGUF_Q4_0, 2},   [GGUF_MOST_Q4_K] = {"q4_k_m", GGUF_Q4_K, 15},
    [GGUF_MOST_TQ2] = {"tq2_0", GGUF_TQ2_0, 37},
};

bool gguf_recipe_parse(const char *name, enum gguf_recipe *out)
{
    for (int i = 0; i < GGUF_RECIPE_COUNT; i++) {
        if (strcasecmp(recipes[i].name, name) == 0) {
            *out = (enum gguf_recipe)i;
            return true;
        }
    }
    return false;
}

const char *gguf_recipe_name(enum gguf_recipe recipe)
{
    return recipes[recipe].name;
}

uint32_t gguf_recipe_id(enum gguf_recipe recipe)
{
    return recipes[recipe].id;
}

static bool has(const char *name, const char *part)
{
    return strstr(name, part) != NULL;
}

/* Little beside the matrices, and much depends on it. */
static bool stays_f32(const struct gguf_wanted *w)
{
    return w->rank == 1 || str_ends_with(w->name, "_norm.weight") ||
           !str_ends_with(w->name, ".weight") || has(w->name, "ffn_gate_inp") ||
           has(w->name, "position_embd");
}

static bool is_head(const struct gguf_wanted *w)
{
    return strcmp(w->name, "output.weight") == 0 ||
           (w->tied && strcmp(w->name, "token_embd.weight") == 0);
}

/* The first and the last eighth of the layers, and each third between. */
static bool gets_more_bits(int64_t layer, int64_t n_layers)
{
    return layer < n_layers / 8 || layer >= 7 * n_layers / 8 || (layer - n_layers / 8) % 3 == 2;
}

static enum gguf_type mixed_type(const struct gguf_wanted *w)
{
    bool values = has(w->name, "attn_v.") || has(w->name, "attn_qkv.");
    if (w->n_experts == 8 && (has(w->name, "attn_v.") || has(w->name, "attn_k.")))
        return GGUF_Q8_0; /* next to nothing beside eight experts */
    if (w->n_experts == 8 && has(w->name, "attn_output."))
        return GGUF_Q5_K;
    if ((values || has(w->name, "ffn_down")) && gets_more_bits(w->layer, w->n_layers))
        return GGUF_Q6_K;
    return GGUF_Q4_K;
}

static enum gguf_type asked_type(enum gguf_recipe recipe, const struct gguf_wanted *w)
{
    if (stays_f32(w))
        return GGUF_F32;
    if (recipe == GGUF_MOST_TQ2 && w->layer < 0)
        return GGUF_F16;
    if (recipe != GGUF_MOST_Q4_0 && recipe != GGUF_MOST_Q4_K)
        return recipes[recipe].type;
    if (is_head(w))
        return GGUF_Q6_K;
    return recipe == GGUF_MOST_Q4_K && w->layer >= 0 ? mixed_type(w) : recipes[recipe].type;
}

enum gguf_type gguf_recipe_type(enum gguf_recipe recipe, const struct gguf_wanted *w, bool *wider)
{
    enum gguf_type type = asked_type(recipe, w);
    *wider = w->row_elems % gguf_types[type].elems != 0;
    if (!*wider)
        return type;
    return w->row_elems % gguf_types[GGUF_Q8_0].elems == 0 ? GGUF_Q8_0 : GGUF_F16;
}
