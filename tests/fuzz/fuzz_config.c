/* Any bytes as a config file: an error or a config that prints, loads back and prints the same. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/log.h"
#include "base/status.h"
#include "base/str.h"
#include "config/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static void check_round_trip(const struct config *cfg)
{
    struct str yaml = {0}, again = {0};
    struct config *back = NULL;
    json_t *before, *after;
    BUG_ON(config_print_yaml(cfg, &yaml) != OK);
    BUG_ON(config_load_text(&back, str_text(&yaml), yaml.n, "printed", NULL, 0) != OK);
    BUG_ON(config_resolve(back, 1) != OK);
    BUG_ON(config_print_yaml(back, &again) != OK);
    BUG_ON(strcmp(str_text(&yaml), str_text(&again)) != 0);
    BUG_ON(config_json(cfg, &before) != OK || config_json(back, &after) != OK);
    BUG_ON(!json_equal(before, after));
    json_decref(before);
    json_decref(after);
    str_release(&yaml);
    str_release(&again);
    config_free(back);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    struct config *cfg = NULL;
    log_set_level(LOG_QUIET);
    /* the part after a 0x1F byte, if there is one, is an override */
    const uint8_t *mark = memchr(data, 0x1F, n_bytes);
    size_t n_text = mark ? (size_t)(mark - data) : n_bytes;
    struct str override = {0};
    if (mark)
        str_add_n(&override, (const char *)mark + 1, n_bytes - n_text - 1);
    const char *overrides[] = {str_text(&override)};
    if (config_load_text(&cfg, (const char *)data, n_text, "fuzz.yaml", overrides, mark ? 1 : 0) ==
            OK &&
        config_resolve(cfg, 1) == OK)
        check_round_trip(cfg);
    config_free(cfg);
    str_release(&override);
    return 0;
}
