/* replace_folder.c: see replace_folder.h. */
#include "io/replace_folder.h"

#include <stdio.h>

#include "base/file.h"

enum status replace_folder(const char *parent, const char *complete, const char *final,
                           const char *aside)
{
    TRY(file_sync_folder(complete));
    int had_one = file_exists(final);
    if (had_one)
        TRY(file_rename(final, aside));
    int in_place = 0;
    enum status status;
    TRY_GOTO(file_rename(complete, final), out);
    in_place = 1;
    TRY_GOTO(file_sync_folder(parent), out);
out:
    /* Undoing keeps the first error's message, so it goes around file_rename. */
    if (status != OK && in_place)
        (void)rename(final, complete);
    if (status != OK && had_one)
        (void)rename(aside, final);
    return status;
}
