#include "support/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"

void scratch_init(struct scratch *s)
{
    (void)snprintf(s->folder, sizeof(s->folder), "/tmp/snug-test-XXXXXX");
    if (!mkdtemp(s->folder))
        fail_msg("cannot make %s", s->folder);
}

void scratch_init_in_memory(struct scratch *s)
{
    (void)snprintf(s->folder, sizeof(s->folder), "/dev/shm/snug-test-XXXXXX");
    if (!mkdtemp(s->folder))
        scratch_init(s);
}

void scratch_release(struct scratch *s)
{
    assert_int_equal(file_remove_tree(s->folder), OK);
}

const char *scratch_path(const struct scratch *s, const char *name, char out[SCRATCH_PATH])
{
    int n = snprintf(out, SCRATCH_PATH, "%s/%s", s->folder, name);
    assert_in_range(n, 1, SCRATCH_PATH - 1);
    return out;
}

void scratch_write(const struct scratch *s, const char *name, const void *data, size_t n_bytes)
{
    char path[SCRATCH_PATH], parent[SCRATCH_PATH];
    scratch_path(s, name, path);
    memcpy(parent, path, sizeof(parent));
    *strrchr(parent, '/') = '\0';
    assert_int_equal(file_make_folders(parent), OK);
    struct file_out f;
    assert_int_equal(file_out_open(&f, path), OK);
    assert_int_equal(file_out_write(&f, data, n_bytes), OK);
    assert_int_equal(file_out_close(&f), OK);
}

void scratch_write_text(const struct scratch *s, const char *name, const char *text)
{
    scratch_write(s, name, text, strlen(text));
}

void expect_message(const char *part)
{
    if (!strstr(status_message(), part))
        fail_msg("'%s' is not in the message: %s", part, status_message());
}
