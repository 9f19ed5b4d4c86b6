/* gguf_names.c: names of tensors; see gguf_model.h. */
#include <ctype.h>
#include <string.h>

#include "io/gguf_model.h"

struct name_pair {
    const char *ours, *theirs;
};

/* Outside of blocks. */
static const struct name_pair whole[] = {
    {"embed_tokens", "token_embd"}, {"wte", "token_embd"},   {"wpe", "position_embd"},
    {"norm", "output_norm"},        {"ln_f", "output_norm"}, {"lm_head", "output"},
};

/* Of a block; norms of the Llama family are where its traits say. */
static const struct name_pair in_block[] = {
    {"ln_1", "attn_norm"},
    {"ln_2", "ffn_norm"},
    {"attn.c_attn", "attn_qkv"},
    {"attn.c_proj", "attn_output"},
    {"mlp.c_fc", "ffn_up"},
    {"mlp.c_proj", "ffn_down"},
    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},
    {"self_attn.qkv_proj", "attn_qkv"},
    {"self_attn.o_proj", "attn_output"},
    {"self_attn.q_norm", "attn_q_norm"},
    {"self_attn.k_norm", "attn_k_norm"},
    {"mlp.gate_proj", "ffn_gate"},
    {"mlp.up_proj", "ffn_up"},
    {"mlp.gate_up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
    {"mlp.gate", "ffn_gate_inp"},
    {"block_sparse_moe.gate", "ffn_gate_inp"},
    {"mlp.experts.#.gate_proj", "ffn_gate_exps"},
    {"mlp.experts.#.up_proj", "ffn_up_exps"},
    {"mlp.experts.#.down_proj", "ffn_down_exps"},
    {"block_sparse_moe.experts.#.w1", "ffn_gate_exps"},
    {"block_sparse_moe.experts.#.w3", "ffn_up_exps"},
    {"block_sparse_moe.experts.#.w2", "ffn_down_exps"},
    {"mlp.shared_expert.gate_proj", "ffn_gate_shexp"},
    {"mlp.shared_expert.up_proj", "ffn_up_shexp"},
    {"mlp.shared_expert.down_proj", "ffn_down_shexp"},
    {"mlp.shared_expert_gate", "ffn_gate_inp_shexp"},
};

/* name[0, n) is `pattern`, in which # stands for a number. */
static bool matches(const char *name, size_t n, const char *pattern)
{
    size_t i = 0;
    for (; *pattern; pattern++) {
        if (*pattern == '#') {
            if (i == n || !isdigit((unsigned char)name[i]))
                return false;
            while (i < n && isdigit((unsigned char)name[i]))
                i++;
        } else if (i == n || name[i++] != *pattern) {
            return false;
        }
    }
    return i == n;
}

static const char *find(const char *name, size_t n, const struct name_pair *pairs, size_t n_pairs)
{
    for (size_t i = 0; i < n_pairs; i++)
        if (pairs[i].ours && matches(name, n, pairs[i].ours))
            return pairs[i].theirs;
    return NULL;
}

static const char *find_norm(const struct model *m, const char *name, size_t n)
{
    if (strcmp(m->def->name, "llama") != 0)
        return NULL;
    const struct block_norms *norms = ((const struct llama_config *)m->config)->traits->norms;
    const struct name_pair pairs[] = {
        {norms->before_attention, "attn_norm"},   {norms->after_attention, "post_attention_norm"},
        {norms->before_feed_forward, "ffn_norm"}, {norms->after_feed_forward, "post_ffw_norm"},
        {norms->before_out, "attn_sub_norm"},     {norms->before_down, "ffn_sub_norm"},
    };
    return find(name, n, pairs, ARRAY_LEN(pairs));
}

/* "layers.12.x" or "h.12.x" -> 12, and *rest = "x"; -1: it is of no block. */
static long block_of(const char *name, const char **rest)
{
    const char *digits = str_starts_with(name, "layers.") ? name + 7
                         : str_starts_with(name, "h.")    ? name + 2
                                                          : NULL;
    long block = 0;
    *rest = name;
    if (!digits || !isdigit((unsigned char)*digits))
        return -1;
    for (; isdigit((unsigned char)*digits); digits++)
        block = block * 10 + (*digits - '0');
    if (*digits != '.')
        return -1;
    *rest = digits + 1;
    return block;
}

enum status gguf_name(const struct model *m, const char *hf_name, struct str *out)
{
    const char *name = str_starts_with(hf_name, "model.")         ? hf_name + 6
                       : str_starts_with(hf_name, "transformer.") ? hf_name + 12
                                                                  : hf_name;
    const char *rest, *kind = strrchr(hf_name, '.');
    long block = block_of(name, &rest);
    size_t n = kind && kind > rest ? (size_t)(kind - rest) : 0;
    const char *theirs = block < 0 ? find(rest, n, whole, ARRAY_LEN(whole))
                                   : find(rest, n, in_block, ARRAY_LEN(in_block));
    if (!theirs && block >= 0)
        theirs = find_norm(m, rest, n);
    if (!theirs)
        return FAIL(ERR_UNSUPPORTED, "GGUF: there is no name for the tensor '%s'", hf_name);
    if (block >= 0)
        str_addf(out, "blk.%ld.", block);
    str_addf(out, "%s%s", theirs, kind);
    return str_status(out);
}
