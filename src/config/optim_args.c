/* optim_args.c: settings of the optimizer in one line, under the names that PyTorch has for them.
 *
 *     optim_args: "beta1=0.9, eps=1e-6"
 *     optim_args: {beta1: 0.9, eps: 1e-6}
 */
#include <string.h>

#include "base/str.h"
#include "config/config_internal.h"

enum family { ADAMW, LION, ADAFACTOR, MUON, SGD };

/* Muon updates embeddings, norms and biases as AdamW does. */
static const struct {
    const char *name, *key;
    unsigned families;
} known[] = {
    {"beta1", "adam_beta1", 1 << ADAMW | 1 << LION | 1 << MUON},
    {"beta2", "adam_beta2", 1 << ADAMW | 1 << LION | 1 << MUON},
    {"eps", "adam_epsilon", 1 << ADAMW | 1 << MUON},
    {"momentum", "muon_momentum", 1 << MUON},
    {"nesterov", "muon_nesterov", 1 << MUON},
    {"ns_steps", "muon_ns_steps", 1 << MUON},
    {"adjust_lr_fn", "muon_adjust_lr", 1 << MUON},
    {"momentum", "momentum", 1 << SGD},
    {"nesterov", "nesterov", 1 << SGD},
    {"scale_parameter", "adafactor_scale_parameter", 1 << ADAFACTOR},
    {"relative_step", "adafactor_relative_step", 1 << ADAFACTOR},
    {"warmup_init", "adafactor_warmup_init", 1 << ADAFACTOR},
    {"clip_threshold", "adafactor_clip_threshold", 1 << ADAFACTOR},
    {"decay_rate", "adafactor_decay_rate", 1 << ADAFACTOR},
    {"weight_decay", "weight_decay", ~0u},
};

/* Of the word that the config has for its optimizer, in all its spellings. */
static enum family family_of(const char *optim)
{
    return strstr(optim, "adafactor") ? ADAFACTOR
           : strstr(optim, "muon")    ? MUON
           : strstr(optim, "lion")    ? LION
           : strstr(optim, "sgd")     ? SGD
                                      : ADAMW;
}

static enum status unknown(const struct config_node *node, const char *name, const char *optim)
{
    struct str names = {0};
    for (size_t i = 0; i < ARRAY_LEN(known); i++) {
        if (known[i].families >> family_of(optim) & 1)
            str_addf(&names, "%s%s", names.n ? ", " : "", known[i].name);
    }
    enum status status =
        FAIL(ERR_CONFIG, "%s: optim_args: optim: %s has no setting \"%.40s\"; there are %s",
             node->where, optim, name, str_text(&names));
    str_release(&names);
    return status;
}

/* The setting takes its key's name, and keeps the one it was written with for messages. */
static enum status rename_setting(struct pool *pool, struct config_node *x, const char *optim)
{
    for (size_t i = 0; i < ARRAY_LEN(known); i++) {
        if (strcmp(known[i].name, x->key) != 0 || !(known[i].families >> family_of(optim) & 1))
            continue;
        x->written = pool_printf(pool, "optim_args.%s", x->key);
        x->key = known[i].key;
        return x->written ? OK : pool_status(pool);
    }
    return unknown(x, x->key, optim);
}

/* "beta1=0.9" of a text of such, without the blanks in it; *text moves on. */
static enum status next_setting(struct pool *pool, const struct config_node *node,
                                const char **text, struct config_node **out)
{
    size_t n = strcspn(*text, ",");
    struct str word = {0};
    for (size_t i = 0; i < n; i++)
        str_add_n(&word, *text + i, (*text)[i] != ' ');
    *text += n + ((*text)[n] == ',');
    enum status status = str_status(&word);
    const char *equals = status == OK ? strchr(str_text(&word), '=') : NULL;
    if (status == OK && (!equals || equals == word.text))
        status = FAIL(ERR_CONFIG,
                      "%s: optim_args: \"%.40s\": expected settings as in "
                      "\"beta1=0.9,eps=1e-6\"",
                      node->where, str_text(&word));
    if (status == OK)
        status = config_node_new(pool, NODE_SCALAR, node->where, out);
    if (status == OK) {
        (*out)->plain = 1;
        (*out)->key = pool_strndup(pool, word.text, (size_t)(equals - word.text));
        (*out)->text = pool_strdup(pool, equals + 1);
        status = pool_status(pool);
    }
    str_release(&word);
    return status;
}

enum status config_optim_args(struct config *cfg, struct config_node *node,
                              struct config_node **settings)
{
    struct pool *pool = &cfg->source->pool;
    const struct config_node *optim = config_node_member(cfg->source->root, "optim");
    const char *word = optim && optim->kind == NODE_SCALAR ? optim->text : "adamw";
    *settings = node;
    if (node->kind == NODE_LIST)
        return FAIL(ERR_CONFIG, "%s: optim_args: expected settings as in \"beta1=0.9,eps=1e-6\"",
                    node->where);
    if (node->kind == NODE_SCALAR) {
        TRY(config_node_new(pool, NODE_MAP, node->where, settings));
        for (const char *text = node->text; *text;) {
            struct config_node *x;
            TRY(next_setting(pool, node, &text, &x));
            config_node_append(*settings, x);
        }
    }
    for (struct config_node *x = (*settings)->first; x; x = x->next)
        TRY(rename_setting(pool, x, word));
    return OK;
}
