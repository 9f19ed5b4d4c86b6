#include "model/adapter.h"

#include <math.h>
#include <string.h>

#include "base/str.h"

/* The first n_path characters of a path end with the name, at its beginning or behind a dot. */
static bool ends_with_module(const char *path, size_t n_path, const char *name)
{
    size_t n = strlen(name);
    if (n == 0 || n > n_path || strncmp(path + n_path - n, name, n) != 0)
        return false;
    return n == n_path || path[n_path - n - 1] == '.';
}

bool module_matches(const char *path, const char *name)
{
    return ends_with_module(path, strlen(path), name);
}

bool module_has(const char *tensor, const char *name)
{
    const char *dot = strrchr(tensor, '.');
    return dot && ends_with_module(tensor, (size_t)(dot - tensor), name);
}

bool adapter_names(const struct adapter *a, const char *path)
{
    for (size_t i = 0; i < a->targets.n; i++) {
        if (module_matches(path, a->targets.items[i]))
            return true;
    }
    return false;
}

bool adapter_has(const struct adapter *a, const char *path)
{
    return a->all_linear || adapter_names(a, path);
}

/* The first pattern that means the module; `otherwise` where none does. */
static double value_of(const struct adapter_pattern *patterns, size_t n, const char *path,
                       double otherwise)
{
    for (size_t i = 0; i < n; i++) {
        if (module_matches(path, patterns[i].module))
            return patterns[i].value;
    }
    return otherwise;
}

int64_t adapter_rank_of(const struct adapter *a, const char *path)
{
    return (int64_t)value_of(a->ranks, a->n_ranks, path, (double)a->rank);
}

double adapter_scale_of(const struct adapter *a, const char *path)
{
    double rank = (double)adapter_rank_of(a, path);
    return value_of(a->alphas, a->n_alphas, path, a->alpha) /
           (a->rank_stabilised ? sqrt(rank) : rank);
}
