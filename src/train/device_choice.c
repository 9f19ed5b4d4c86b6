#include "train/device_choice.h"

#include "base/log.h"

static enum status open_cpu(struct device *d, const struct config *cfg)
{
    return device_open_cpu(d, (int)cfg->num_threads);
}

enum status device_choose(struct device *d, const struct config *cfg, const char *cache_folder)
{
    *d = (struct device){0};
    if (cfg->device == CONFIG_DEVICE_CPU)
        return open_cpu(d, cfg);
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
    return open_cpu(d, cfg);
}
