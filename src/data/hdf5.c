#include "data/hdf5.h"

#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/str.h"

bool hdf5_is_named(const char *path)
{
    return str_ends_with(path, ".h5") || str_ends_with(path, ".hdf5") ||
           str_ends_with(path, ".hdf");
}

#ifdef SNUG_HAS_HDF5
#include <dlfcn.h>
#include <hdf5.h>

/* ---- the library ------------------------------------------------------------------------------
 *
 * Loaded by the first file that needs it: with what it depends on in turn (protocols, ciphers) it
 * is larger than this program, and hardly a run reads such files.
 */

#define FUNCTIONS(X)              \
    X(H5open)                     \
    X(H5get_libversion)           \
    X(H5Eset_auto2)               \
    X(H5Fopen)                    \
    X(H5Fclose)                   \
    X(H5Dopen2)                   \
    X(H5Dget_type)                \
    X(H5Dget_space)               \
    X(H5Dread)                    \
    X(H5Dclose)                   \
    X(H5Tget_class)               \
    X(H5Tclose)                   \
    X(H5Sget_simple_extent_ndims) \
    X(H5Sget_simple_extent_dims)  \
    X(H5Screate_simple)           \
    X(H5Sselect_hyperslab)        \
    X(H5Sclose)

static struct {
    void *library;
    const hid_t *native_double;
#define X(name) __typeof__(name) *name;
    FUNCTIONS(X)
#undef X
} h5;

/* dlsym gives a data pointer; ISO C wants function pointers copied out of it. */
static bool load_function(void *function, size_t n_bytes, const char *name)
{
    void *symbol = dlsym(h5.library, name);
    memcpy(function, &symbol, n_bytes);
    return symbol != NULL;
}

static bool load_functions(void)
{
    bool all = true;
#define X(name) all = load_function(&h5.name, sizeof(h5.name), #name) && all;
    FUNCTIONS(X)
#undef X
    /* What H5T_NATIVE_DOUBLE reads. A program that is linked with the library has its own of it. */
    h5.native_double = dlsym(RTLD_DEFAULT, "H5T_NATIVE_DOUBLE_g");
    if (!h5.native_double)
        h5.native_double = dlsym(h5.library, "H5T_NATIVE_DOUBLE_g");
    return all && h5.native_double;
}

static enum status load_library(const char *path)
{
    unsigned major = 0, minor = 0, release = 0;
    if (h5.library)
        return OK;
    h5.library = dlopen(SNUG_HDF5_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!h5.library)
        return FAIL(ERR_UNSUPPORTED, "%s: " SNUG_HDF5_LIBRARY " is not on this machine: %s", path,
                    dlerror());
    if (load_functions() && h5.H5open() >= 0 &&
        h5.H5get_libversion(&major, &minor, &release) >= 0 && major == H5_VERS_MAJOR &&
        minor == H5_VERS_MINOR) {
        (void)h5.H5Eset_auto2(H5E_DEFAULT, NULL, NULL); /* what is wrong is said below */
        return OK;
    }
    (void)dlclose(h5.library);
    h5.library = NULL;
    return FAIL(ERR_UNSUPPORTED,
                "%s: " SNUG_HDF5_LIBRARY " is of version %u.%u, and this build wants %d.%d", path,
                major, minor, H5_VERS_MAJOR, H5_VERS_MINOR);
}

/* ---- data sets ------------------------------------------------------------------------------- */

struct hdf5_set {
    char *path, *name;           /* for messages */
    hid_t file, set, space, row; /* row: as many numbers in memory */
    int rank;
    hsize_t dims[HDF5_MOST_AXES];
};

static enum status open_set(struct hdf5_set *s)
{
    /* 0: H5F_ACC_RDONLY, whose macro calls the library by name. */
    s->file = h5.H5Fopen(s->path, 0, H5P_DEFAULT);
    if (s->file < 0)
        return FAIL(ERR_DATA, "%s: cannot be read as an HDF5 file", s->path);
    s->set = h5.H5Dopen2(s->file, s->name, H5P_DEFAULT);
    if (s->set < 0)
        return FAIL(ERR_DATA, "%s: has no data set '%s'", s->path, s->name);
    hid_t type = h5.H5Dget_type(s->set);
    H5T_class_t kind = h5.H5Tget_class(type);
    (void)h5.H5Tclose(type);
    if (kind != H5T_INTEGER && kind != H5T_FLOAT)
        return FAIL(ERR_DATA, "%s: '%s' does not hold numbers", s->path, s->name);
    s->space = h5.H5Dget_space(s->set);
    s->rank = s->space < 0 ? -1 : h5.H5Sget_simple_extent_ndims(s->space);
    if (s->rank < 1 || s->rank > HDF5_MOST_AXES)
        return FAIL(ERR_DATA,
                    "%s: '%s' has %d axes; its first axis counts samples, and it has at "
                    "most %d",
                    s->path, s->name, s->rank, HDF5_MOST_AXES);
    (void)h5.H5Sget_simple_extent_dims(s->space, s->dims, NULL);
    hsize_t n = 1;
    for (int i = 1; i < s->rank; i++)
        n *= s->dims[i];
    s->row = h5.H5Screate_simple(1, &n, NULL);
    return s->row < 0 ? FAIL(ERR_DATA, "%s: '%s' has rows of no elements", s->path, s->name) : OK;
}

enum status hdf5_open(struct hdf5_set **out, const char *path, const char *name, int *rank,
                      int64_t dims[HDF5_MOST_AXES])
{
    struct hdf5_set *s;
    *out = NULL;
    TRY(load_library(path));
    TRY(mem_try_array(&s, 1, sizeof(*s)));
    s->file = s->set = s->space = s->row = -1;
    s->path = mem_strdup(path);
    s->name = mem_strdup(name);
    enum status status = s->path && s->name ? open_set(s) : FAIL(ERR_MEMORY, "%s: no memory", path);
    if (status != OK) {
        hdf5_close(s);
        return status;
    }
    *rank = s->rank;
    for (int i = 0; i < s->rank; i++)
        dims[i] = (int64_t)s->dims[i];
    *out = s;
    return OK;
}

void hdf5_close(struct hdf5_set *s)
{
    if (!s)
        return;
    if (s->row >= 0)
        (void)h5.H5Sclose(s->row);
    if (s->space >= 0)
        (void)h5.H5Sclose(s->space);
    if (s->set >= 0)
        (void)h5.H5Dclose(s->set);
    if (s->file >= 0)
        (void)h5.H5Fclose(s->file);
    mem_free(s->path);
    mem_free(s->name);
    mem_free(s);
}

enum status hdf5_read_row(struct hdf5_set *s, int64_t row, double *out)
{
    hsize_t first[HDF5_MOST_AXES] = {(hsize_t)row}, size[HDF5_MOST_AXES];
    memcpy(size, s->dims, sizeof(size));
    size[0] = 1;
    if (h5.H5Sselect_hyperslab(s->space, H5S_SELECT_SET, first, NULL, size, NULL) < 0 ||
        h5.H5Dread(s->set, *h5.native_double, s->row, s->space, H5P_DEFAULT, out) < 0)
        return FAIL(ERR_DATA,
                    "%s: '%s': row %" PRId64 " cannot be read: the file is damaged, or "
                    "compressed in a way that this machine's HDF5 does not know",
                    s->path, s->name, row);
    return OK;
}
#else
enum status hdf5_open(struct hdf5_set **out, const char *path, const char *name, int *rank,
                      int64_t dims[HDF5_MOST_AXES])
{
    *out = NULL;
    (void)name;
    (void)rank;
    (void)dims;
    return FAIL(ERR_UNSUPPORTED,
                "%s: this build reads no HDF5; install libhdf5-dev and build again", path);
}

void hdf5_close(struct hdf5_set *s)
{
    (void)s;
}

enum status hdf5_read_row(struct hdf5_set *s, int64_t row, double *out)
{
    (void)s;
    (void)row;
    (void)out;
    return FAIL(ERR_UNSUPPORTED, "this build reads no HDF5");
}
#endif
