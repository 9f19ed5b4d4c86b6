#include "engine/device_choice.h"

#include "base/log.h"
#include "device/card/card.h"

static enum status open_cpu(struct device *d, const struct config *cfg, const char *cache_folder,
                            int n_threads)
{
    int wanted = cfg->num_threads > 0 ? (int)cfg->num_threads : n_threads;
    return device_open_cpu_cached(d, wanted, cache_folder);
}

static enum status open_any(struct device *d, const struct config *cfg, const char *cache_folder,
                            int n_threads)
{
    if (cfg->device == CONFIG_DEVICE_CPU)
        return open_cpu(d, cfg, cache_folder, n_threads);
    enum status status = device_open_cuda_cached(d, 0, cache_folder);
    if (status == OK)
        return OK;
    if (cfg->device == CONFIG_DEVICE_CUDA)
        return status_prefix(status, "%s: device", config_where(cfg, "device"));
    /* A GPU that is there but full is no reason to go elsewhere without being asked. */
    if (status != ERR_UNSUPPORTED)
        return status_prefix(status, "device: auto found a GPU");
#ifdef SNUG_HAVE_CUDA
    log_warn("device: auto is the CPU here: %s", status_message());
#endif
    return open_cpu(d, cfg, cache_folder, n_threads);
}

/* ---- compile, tf32, deterministic ----------------------------------------------------------- */

static enum status check_compile(const struct device *d, const struct config *cfg)
{
    bool search = cfg->compile == CONFIG_COMPILE_MAX_AUTOTUNE;
    bool record = cfg->compile == CONFIG_COMPILE_REDUCE_OVERHEAD || search;
    if (record && !d->ops->capture_begin)
        return FAIL(ERR_UNSUPPORTED,
                    "%s: compile: %s records and replays CUDA graphs, and the device is the %s: "
                    "use compile: default, or device: cuda",
                    config_where(cfg, "compile"), config_choice_name("compile", (int)cfg->compile),
                    d->ops->name);
    if (search && cfg->deterministic)
        return FAIL(ERR_CONFIG,
                    "%s: compile: max-autotune chooses algorithms by their measured time, so that "
                    "another run may round differently, but deterministic (%s) is true: use "
                    "compile: reduce-overhead",
                    config_where(cfg, "compile"), config_where(cfg, "deterministic"));
    return OK;
}

static enum status tune(struct device *d, const struct config *cfg)
{
    struct device_tuning t = {
        .unrecorded = cfg->compile == CONFIG_COMPILE_NONE || cfg->compile == CONFIG_COMPILE_DEFAULT,
        .search = cfg->compile == CONFIG_COMPILE_MAX_AUTOTUNE,
        .tf32 = cfg->tf32 != CONFIG_TRISTATE_FALSE,
    };
    TRY(check_compile(d, cfg));
    enum status status = device_tune(d, &t);
    if (status != OK && cfg->tf32 == CONFIG_TRISTATE_AUTO) { /* then without */
        t.tf32 = false;
        status = device_tune(d, &t);
    }
    if (status != OK)
        return status_prefix(status, "%s", config_where(cfg, t.tf32 ? "tf32" : "compile"));
    return OK;
}

static enum status tune_or_close(struct device *d, const struct config *cfg)
{
    enum status status = tune(d, cfg);
    if (status != OK)
        device_close(d);
    return status;
}

enum status device_choose(struct device *d, const struct config *cfg, const char *cache_folder,
                          int n_threads)
{
    *d = (struct device){0};
    TRY(open_any(d, cfg, cache_folder, n_threads));
    return tune_or_close(d, cfg);
}

enum status device_choose_card(struct device *d, const struct config *cfg, const char *name)
{
    TRY(device_open_card(d, name));
    return tune_or_close(d, cfg);
}
