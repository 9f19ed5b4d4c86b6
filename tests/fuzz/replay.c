/* replay.c: a main() for a fuzz target where there is no fuzzer: runs it on every file of the
 * folders and files given. A missing one is an error, an empty folder is not. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/str.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static enum status replay_file(const char *path)
{
    char *text;
    size_t n_bytes;
    TRY(file_read(path, &text, &n_bytes));
    (void)LLVMFuzzerTestOneInput((const uint8_t *)text, n_bytes);
    mem_free(text);
    return OK;
}

static enum status replay_folder(const char *folder, int *n_inputs)
{
    DIR *d = opendir(folder);
    if (!d)
        return FAIL(ERR_IO, "%s: cannot open folder", folder);
    struct str path = {0};
    enum status status = OK;
    for (struct dirent *e = readdir(d); e && status == OK; e = readdir(d)) {
        if (e->d_name[0] == '.')
            continue;
        str_clear(&path);
        str_addf(&path, "%s/%s", folder, e->d_name);
        TRY_GOTO(str_status(&path), out);
        TRY_GOTO(replay_file(path.text), out);
        ++*n_inputs;
    }
out:
    str_release(&path);
    (void)closedir(d);
    return status;
}

int main(int argc, char **argv)
{
    int n_inputs = 0;
    for (int i = 1; i < argc; i++) {
        enum status status;
        if (file_is_folder(argv[i])) {
            status = replay_folder(argv[i], &n_inputs);
        } else {
            status = replay_file(argv[i]);
            n_inputs++;
        }
        if (status != OK) {
            (void)fprintf(stderr, "%s\n", status_message());
            return 1;
        }
    }
    (void)printf("%d inputs\n", n_inputs);
    return 0;
}
